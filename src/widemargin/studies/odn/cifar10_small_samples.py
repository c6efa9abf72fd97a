"""O3: CIFAR-10 from 0.5 % of the training set to all of it (odn, §4.2, Fig. 2b)."""

from __future__ import annotations

from widemargin.studies.odn import data, fractions, losses
from widemargin.studies.schema import Study, scales
from widemargin.studies.settings import Settings, overlay

FRACTIONS: dict[float, Settings] = {
    0.005: {"data.train": 225},
    0.01: {"data.train": 450},
    0.05: {"data.train": 2250},
    0.1: {"data.train": 4500},
    0.25: {"data.train": 11_250},
    0.5: {"data.train": 22_500},
    1.0: {"data.train": None},
}
LEAST = {"fraction": 0.005}
_REPORTED = {"Xent": 9.9, "hinge": 10.1, "soft hinge": 13.4}

O3 = Study(
    id="O3",
    source="odn, Fig. 2b",
    title="Small training sets of CIFAR-10",
    question="Does the optimal margin distribution loss do better than the others where there are few samples?",
    arms=losses.arms(),
    settings=data.CIFAR10,
    axes={"fraction": FRACTIONS},
    claims=fractions.claims(LEAST, "0.5 % of the training set (225 samples)", _REPORTED),
    figures=(fractions.figure("2b"),),
    scales=scales(
        minutes=(0.1, 12, 60, 3000),
        settings=(
            overlay(data.SMOKE_CIFAR10, data.SMOKE),
            {
                **data.QUICK,
                "data": {"name": "synthetic", "shape": (3, 32, 32), "samples": 700, "validation": 200},
                "network": {"widths": (8, 16, 16, 16, 16), "hidden": (64, 64)},
                "steps": 40,
            },
            {"steps": 3000},
        ),
        of_values=({"fraction": {0.005: {"data.train": 40}}},),
        seeds=(1, 2, 3, 5),
        cells=(1, 2, 4, 6),
        search_at=(None, {"fraction": 0.01}, {"fraction": 0.01}),
        only=({"fraction": (0.005, 1.0)}, {"fraction": (0.005, 0.01)}, {"fraction": (0.005, 0.01, 0.1, 1.0)}),
        arms=((*losses.PAPER, "ours ODN"), (*losses.PAPER, "ours ODN")),
        note=(
            "synthetic images, a small network, 3 steps, no search",
            "synthetic images of CIFAR-10's shape, since there are none in any package: nothing is learnt of the "
            "claims; two cores",
            "steps cut from 40,000 to 3,000, then fractions to four of seven, then the search to 4 cells at 1 % "
            "of the training set for all fractions; one GPU",
            "all fractions, each with its own search; one GPU",
        ),
    ),
    deviations=(
        *losses.DEVIATIONS,
        "How AlexNet was adapted to 32 × 32 pixels is not described: see the network's own words.",
        "The images are not augmented; the paper does not say.",
    ),
)
