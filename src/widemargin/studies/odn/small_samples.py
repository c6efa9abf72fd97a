"""O2: MNIST from 0.125 % of the training set to all of it (odn, §4.2, Fig. 2a)."""

from __future__ import annotations

from widemargin.studies.odn import data, fractions, losses
from widemargin.studies.schema import Study, scales
from widemargin.studies.settings import overlay

LEAST = {"fraction": 0.00125}
_REPORTED = {"Xent": 4.95, "hinge": 6.84, "soft hinge": 3.03}

O2 = Study(
    id="O2",
    source="odn, Fig. 2a",
    title="Small training sets of MNIST",
    question="Does the optimal margin distribution loss do better than the others where there are few samples?",
    arms=losses.arms(),
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    claims=fractions.claims(LEAST, "0.125 % of the training set (68 samples)", _REPORTED),
    figures=(fractions.figure("2a"),),
    scales=scales(
        minutes=(0.1, 12, 12, 900),
        settings=(overlay(data.SMOKE_MNIST, data.SMOKE), overlay(data.QUICK_MNIST, data.QUICK), data.BUDGET),
        seeds=(2, 2, 5, 5),
        cells=(1, 2, 4, 6),
        search_at=(None, data.BUDGET_SEARCH),
        only=({"fraction": (0.00125, 0.01)}, {"fraction": (0.00125, 0.01)}, {"fraction": (0.00125, 0.01, 1.0)}),
        arms=((*losses.PAPER, "ours ODN"), (*losses.PAPER, "ours ODN")),
        note=(
            "digits of 8 × 8 pixels, a small network, 3 steps, no search",
            "68 and 550 images of mnist-5k; then steps, widths, the search (2 cells, at 550 images); two cores",
            "steps cut from 20,000 to 5,000, then fractions to three of nine, then the search to 4 cells; one GPU",
            "all fractions, each with its own search; one GPU, as populations",
        ),
    ),
    deviations=losses.DEVIATIONS,
)
