"""O1: test accuracy of four losses on MNIST and CIFAR-10 (odn, §4.1)."""

from __future__ import annotations

from widemargin.studies.claims import order, value
from widemargin.studies.figure import accuracy
from widemargin.studies.odn import data, losses
from widemargin.studies.schema import Claim, Study, grid, named, scales

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
        minutes=(0.1, 8, 10, 900),
        of_values=(
            {"set": {"MNIST": data.SMOKE_MNIST, "CIFAR-10": data.SMOKE_CIFAR10}},
            {"set": {"MNIST": data.QUICK_MNIST}},
            {"set": {"MNIST": data.BUDGET}},
        ),
        seeds=(2, 2, 3, 5),
        cells=(1, 2, 4, 6),
        only=({}, {"set": ("MNIST",)}, {"set": ("MNIST",)}),
        arms=(losses.SOME, losses.SOME),
        note=(
            "digits of 8 × 8 pixels, synthetic images for CIFAR-10, small networks, 3 steps, no search",
            "MNIST alone, as mnist-5k; then steps, widths, the search (2 cells); two cores",
            "CIFAR-10 is left out, then steps are cut from 20,000 to 5,000, then the search to 4 cells; the "
            "networks are those of O7; one GPU",
            "as the paper; one GPU",
        ),
    ),
    deviations=losses.DEVIATIONS,
)
