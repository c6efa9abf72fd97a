"""S2: fully connected networks of 1 to 3 layers, Jacobian regularizer against weight decay (sokolic, Fig. 2)."""

from __future__ import annotations

from typing import Any

from widemargin.studies.claims import order
from widemargin.studies.figure import Figure, accuracy
from widemargin.studies.schema import Study, axis, named, scales
from widemargin.studies.settings import Settings
from widemargin.studies.sokolic import regularized


def _set(samples: int, **data: Any) -> Settings:
    return {"data": {"validation": 5000, "train": samples, **data}, "steps": 110 * -(-samples // 128)}


SETS: dict[str, Settings] = {
    "MNIST-5000": _set(5000, name="mnist"),
    "MNIST-20000": _set(20_000, name="mnist"),
    "CIFAR10-5000": _set(5000, name="cifar10", pca=784),
    "CIFAR10-20000": _set(20_000, name="cifar10", pca=784),
}
"""CIFAR-10 is reduced to 784 dimensions by principal components; 110 epochs each."""

_DECAYS = (1e-4, 1e-3, 1e-5, 1e-2, 1e-6, 1e-1)
_JACOBIANS = (0.01, 0.1, 0.001, 0.03, 1.0, 2.0)

_DIGITS = {
    "data": {"name": "digits", "validation": 100, "train": 100, "test": 100},
    "network": {"inputs": 64, "first": 8, "higher": 6},
    "steps": 3,
}
_SYNTHETIC = {
    "data": {"name": "synthetic", "shape": (3, 8, 8), "samples": 120, "pca": 16}
    | {"validation": 20, "train": 60, "test": 40},
    "network": {"inputs": 16, "first": 8, "higher": 6},
    "steps": 3,
}


def _figure(name: str, letter: str) -> Figure:
    title = f"{name}: test accuracy over the number of layers (sokolic, Fig. 2{letter})"
    return accuracy("layers", title, "number of layers L", where={"set": name})


S2 = Study(
    **named("S2", "sokolic, Fig. 2", "Jacobian regularizer against weight decay"),
    question="Does the Jacobian regularizer (LM) beat weight decay (WD) whatever the depth and the data?",
    arms=(
        regularized.large_margin("hinge", name="LM", form="random", penalties=_JACOBIANS),
        regularized.weight_decay("hinge", name="WD", penalties=_DECAYS),
        regularized.ours(),
    ),
    settings={
        "network": {"name": "sokolic-mlp"},
        "schedule": {"name": "steps", "at": (30 / 110, 60 / 110, 90 / 110), "factors": (0.1, 0.01, 0.001)},
        "batch": 128,
    },
    axes={"set": SETS, "layers": axis("network.layers", (1, 2, 3))},
    claims=tuple(
        order(f"{name}: LM above WD with 1, 2 and 3 layers", "LM", "WD", where={"set": name, "layers": (1, 2, 3)})
        for name in SETS
    ),
    figures=tuple(_figure(name, letter) for name, letter in zip(SETS, "abcd", strict=True)),
    scales=scales(
        minutes=(0.1, 15, 15, 600),
        settings=({"batch": 20}, {"network": {"first": 128, "higher": 64}}),
        of_arms=({}, {}, {"LM": {"regularizers.jacobian.form": "sum"}}),
        of_values=(
            {"set": {name: _DIGITS if "MNIST" in name else _SYNTHETIC for name in SETS}},
            {"set": {"MNIST-5000": {"data": {"name": "mnist-5k", "validation": 500, "train": 2000}, "steps": 500}}},
            {"set": {name: {"steps": 4400 if "-5000" in name else 8800} for name in SETS}},
        ),
        seeds=(1, 2),
        cells=(1, 2, 3, 6),
        search_at=(None, {"set": "MNIST-5000", "layers": 2}, {"layers": 2}),
        only=({}, {"set": ("MNIST-5000",)}),
        note=(
            "digits of 8 × 8 pixels, 16 components of synthetic images for CIFAR-10, 3 steps, no search",
            "2,000 images of mnist-5k alone, then widths, then steps, then the search (2 cells, at 2 layers); "
            "two cores",
            "110 epochs of 20,000 samples are cut to 56, then the search to 3 cells at 2 layers; the regularizer "
            "adds up all class vectors instead of drawing one (10 times as much, on average); one GPU",
            "a search for each condition; one GPU",
        ),
    ),
    deviations=(*regularized.DEVIATIONS, "The components of CIFAR-10 are those of all its training images."),
)
