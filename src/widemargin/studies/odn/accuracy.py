"""O1 to O3: test accuracy of four losses on all or a small share of MNIST and CIFAR-10 (odn, §4.1, 4.2, Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping

from widemargin.studies.claims import gap, order, value
from widemargin.studies.odn import data, losses
from widemargin.studies.schema import Claim, Figure, Study, accuracy, effort, grid, named, scales

_REPORTED = {
    "MNIST": {"Xent": 99.09, "hinge": 98.95, "soft hinge": 99.14, "ODN": 99.16},
    "CIFAR-10": {"Xent": 83.51, "hinge": 82.15, "soft hinge": 81.96, "ODN": 84.61},
}


def _claims(name: str) -> tuple[Claim, ...]:
    where = {"set": name}
    values = [value(f"{name}, {arm}", arm, reported, where=where) for arm, reported in _REPORTED[name].items()]
    return (*values, *(order(f"{name}: ODN above {other}", losses.ODN, other, where=where) for other in losses.OTHERS))


O1 = Study(
    **named("O1", "odn, §4.1", "Accuracy on all data"),
    question="How do the four losses compare where there are as many samples as there can be?",
    arms=losses.arms(),
    axes={"set": {"MNIST": data.MNIST, "CIFAR-10": data.CIFAR10}, "fraction": data.FRACTIONS},
    conditions=grid(set=("MNIST", "CIFAR-10"), fraction=(1.0,)),
    claims=(*_claims("MNIST"), *_claims("CIFAR-10")),
    figures=(accuracy("set", "Test accuracy of every loss (odn, §4.1)", "data", kind="bars"),),
    scales=scales(
        "digits of 8 × 8 pixels, synthetic images for CIFAR-10, small networks, 3 steps, no search",
        "MNIST alone, as mnist-5k; then steps, widths, the search (2 cells); two cores",
        "CIFAR-10 is left out, then steps are cut from 20,000 to 5,000, then the search to 4 cells; the "
        "networks are those of O7; one GPU",
        "as the paper; one GPU",
        **effort(minutes=(0.1, 8, 10, 900), seeds=(2, 2, 3, 5), cells=(1, 2, 4, 6)),
        of_values=(
            {"set": {"MNIST": data.SMOKE_MNIST, "CIFAR-10": data.SMOKE_CIFAR10}},
            {"set": {"MNIST": data.QUICK_MNIST}},
            {"set": {"MNIST": data.BUDGET}},
        ),
        only=({}, {"set": ("MNIST",)}, {"set": ("MNIST",)}),
        arms=(losses.SOME, losses.SOME),
    ),
    deviations=losses.DEVIATIONS,
)

QUESTION = "Does the optimal margin distribution loss do better than the others where there are few samples?"


def _small_claims(least: float, words: str, reported: Mapping[str, float]) -> tuple[Claim, ...]:
    """ODN is above each of the others by `reported` points at the smallest share, and above them at every share."""
    gaps = [
        gap(f"at {words}, ODN minus {other}", losses.ODN, other, points, where={"fraction": least})
        for other, points in reported.items()
    ]
    return (*gaps, *(order(f"ODN above {other} at every fraction", losses.ODN, other) for other in losses.OTHERS))


def _figure(panel: str) -> Figure:
    title = f"Test accuracy over the share of the training set that is used (odn, Fig. {panel})"
    return accuracy("fraction", title, "share of the training set", log_x=True)


O2 = Study(
    **named("O2", "odn, Fig. 2a", "Small training sets of MNIST"),
    question=QUESTION,
    arms=losses.arms(),
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    claims=_small_claims(
        0.00125, "0.125 % of the training set (68 samples)", {"Xent": 4.95, "hinge": 6.84, "soft hinge": 3.03}
    ),
    figures=(_figure("2a"),),
    scales=scales(
        "digits of 8 × 8 pixels, a small network, 3 steps, no search",
        "68 and 550 images of mnist-5k; then steps, widths, the search (2 cells, at 550 images); two cores",
        "steps cut from 20,000 to 5,000, then fractions to three of nine, then the search to 4 cells; one GPU",
        "all fractions, each with its own search; one GPU, as populations",
        **effort(minutes=(0.1, 12, 12, 900), seeds=(2, 2, 5, 5), cells=(1, 2, 4, 6)),
        settings=(data.SMOKE_MNIST, data.QUICK_MNIST, data.BUDGET),
        search_at=(None, data.BUDGET_SEARCH),
        only=({"fraction": (0.00125, 0.01)}, {"fraction": (0.00125, 0.01)}, {"fraction": (0.00125, 0.01, 1.0)}),
        arms=(losses.SOME, losses.SOME),
    ),
    deviations=losses.DEVIATIONS,
)
O3 = Study(
    **named("O3", "odn, Fig. 2b", "Small training sets of CIFAR-10"),
    question=QUESTION,
    arms=losses.arms(),
    settings=data.CIFAR10,
    axes={"fraction": data.FRACTIONS_OF_CIFAR10},
    claims=_small_claims(
        0.005, "0.5 % of the training set (225 samples)", {"Xent": 9.9, "hinge": 10.1, "soft hinge": 13.4}
    ),
    figures=(_figure("2b"),),
    scales=scales(
        "synthetic images, a small network, 3 steps, no search",
        "synthetic images of CIFAR-10's shape, since there are none in any package: nothing is learnt of the "
        "claims; two cores",
        "steps cut from 40,000 to 3,000, then fractions to four of seven, then the search to 4 cells at 1 % "
        "of the training set for all fractions; one GPU",
        "all fractions, each with its own search; one GPU",
        **effort(minutes=(0.1, 12, 60, 3000), seeds=(1, 2, 3, 5), cells=(1, 2, 4, 6)),
        settings=(data.SMOKE_CIFAR10, data.QUICK_CIFAR10, {"steps": 3000}),
        of_values=({"fraction": {0.005: {"data.train": 40}}},),
        search_at=(None, {"fraction": 0.01}, {"fraction": 0.01}),
        only=({"fraction": (0.005, 1.0)}, {"fraction": (0.005, 0.01)}, {"fraction": (0.005, 0.01, 0.1, 1.0)}),
        arms=(losses.SOME, losses.SOME),
    ),
    deviations=(
        *losses.DEVIATIONS,
        "How AlexNet was adapted to 32 × 32 pixels is not described: see the network's own words.",
        "The images are not augmented; the paper does not say.",
    ),
)
