"""S2, S3: the Jacobian regularizer against weight decay (sokolic, §V, Fig. 2 and Table I, and the appendix)."""

from __future__ import annotations

from typing import Any

from widemargin.studies.claims import Claim, gap, order, value
from widemargin.studies.schema import Arm, Figure, Search, Study, accuracy, axis, effort, named, scales
from widemargin.studies.settings import Settings, sgd

TIE = 0.5
"""Points: Table I has ties, and a test set of 10,000 tells accuracies of 90 % apart by 0.4."""

AT_LEAST = f"WD everywhere at least as good as no regularization, up to {TIE:g} points"
Q_HINGE = (
    "We observe that CNN trained with the hinge loss always outperform the networks trained with the CCE loss, "
    "provided that WD or LM regularization is used."
)
Q_WD = (
    "We also observe that WD always outperforms or is at least as good as no regularization, and LM regularization "
    "always outperforms WD, independently of the loss function used."
)
Q_FIG = "We observe that the proposed LM regularization always outperforms WD."

LOSSES: dict[str, Settings] = {"hinge": {"name": "hinge"}, "CCE": {"name": "cross-entropy"}}


def weight_decay(loss: str, *, name: str, penalties: tuple[float, ...]) -> Arm:
    """λ·(23) as the optimizer's weight decay, which is 2λ there; `penalties` are the λ."""
    decays: Search = {"optimizer.weight_decay": tuple(2 * penalty for penalty in penalties)}
    return Arm(name, {"loss": LOSSES[loss], "optimizer": sgd(0.01)}, decays)


def large_margin(loss: str, *, name: str, form: str, penalties: tuple[float, ...]) -> Arm:
    """λ·(26), with the λ before the paper divides them by the batch size; no penalty of the classifier's matrix."""
    regularizers = {
        "jacobian": {"name": "jacobian", "weight": penalties[0], "form": form},
        "classifier": {"name": "classifier", "weight": 0.0},
    }
    settings = {"loss": LOSSES[loss], "optimizer": sgd(0.01), "regularizers": regularizers}
    return Arm(name, settings, {"regularizers.jacobian.weight": penalties})


def ours() -> Arm:
    """The library's default margin loss at the input, l_2 and scale-free, without a regularizer."""
    loss = {"name": "large-margin", "p": 2.0, "gamma": 1.0, "classes": 1}
    search: Search = {"loss.gamma": (1.0, 2.0, 0.5), "optimizer.lr": (0.01, 0.03, 0.003)}
    return Arm("ours l_2 margin", {"loss": loss, "optimizer": sgd(0.01)}, search, ours=True)


def wide_margin() -> Arm:
    """The library's recommended loss, without a regularizer."""
    search: Search = {"optimizer.weight_decay": (0.0, 2e-3, 2e-4), "optimizer.lr": (0.01, 0.03, 0.003)}
    return Arm("WideMargin", {"loss": {"name": "wide-margin"}, "optimizer": sgd(0.01)}, search, ours=True)


DEVIATIONS = (
    "The paper reports the best test accuracy over epochs and settings. Here settings are chosen on 5,000 held-out "
    "images, and the test set is read once, after the last step: ours are lower for that reason alone.",
    "Weight decay is the optimizer's, which takes the biases too.",
    "The penalty of the classifier's matrix, which the paper searches beside both regularizers, is left at 0.",
    "Images are in [0, 1]; the paper does not say how they are scaled.",
)


def _set(samples: int, **data: Any) -> Settings:
    return {"data": {"validation": 5000, "train": samples, **data}, "steps": 110 * -(-samples // 128)}


SETS: dict[str, Settings] = {
    "MNIST-5000": _set(5000, name="mnist"),
    "MNIST-20000": _set(20_000, name="mnist"),
    "CIFAR10-5000": _set(5000, name="cifar10", pca=784),
    "CIFAR10-20000": _set(20_000, name="cifar10", pca=784),
}
"""CIFAR-10 is reduced to 784 dimensions by principal components; 110 epochs each."""

_DECAYS_OF_S2 = (1e-4, 1e-3, 1e-5, 1e-2, 1e-6, 1e-1)
_JACOBIANS_OF_S2 = (0.01, 0.1, 0.001, 0.03, 1.0, 2.0)

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
        large_margin("hinge", name="LM", form="random", penalties=_JACOBIANS_OF_S2),
        weight_decay("hinge", name="WD", penalties=_DECAYS_OF_S2),
        ours(),
        wide_margin(),
    ),
    settings={
        "network": {"name": "sokolic-mlp"},
        "schedule": {"name": "steps", "at": (30 / 110, 60 / 110, 90 / 110), "factors": (0.1, 0.01, 0.001)},
        "batch": 128,
    },
    axes={"set": SETS, "layers": axis("network.layers", (1, 2, 3))},
    claims=tuple(
        order(f"{name}: LM above WD with {words}", "LM", "WD", where={"set": name, "layers": (1, 2, 3)}, quote=Q_FIG)
        for words in ("1, 2 and 3 layers",)
        for name in SETS
    ),
    figures=tuple(_figure(name, letter) for name, letter in zip(SETS, "abcd", strict=True)),
    scales=scales(
        "digits of 8 × 8 pixels, 16 components of synthetic images for CIFAR-10, 3 steps, no search",
        "2,000 images of mnist-5k alone, then widths, then steps, then the search (2 cells, at 2 layers); two cores",
        "110 epochs of 20,000 samples are cut to 56, then the search to 3 cells at 2 layers; the regularizer "
        "adds up all class vectors instead of drawing one (10 times as much, on average); one GPU",
        "a search for each condition; one GPU",
        **effort(minutes=(0.1, 15, 15, 600), seeds=(1, 2), cells=(1, 2, 3, 6), search_seeds=(1, 1, 3, 3)),
        settings=({"batch": 20}, {"network": {"first": 128, "higher": 64}}),
        of_arms=({}, {}, {"LM": {"regularizers.jacobian.form": "sum"}}),
        of_values=(
            {"set": {name: _DIGITS if "MNIST" in name else _SYNTHETIC for name in SETS}},
            {"set": {"MNIST-5000": {"data": {"name": "mnist-5k", "validation": 500, "train": 2000}, "steps": 500}}},
            {"set": {name: {"steps": 4400 if "-5000" in name else 8800} for name in SETS}},
        ),
        search_at=(None, {"set": "MNIST-5000", "layers": 2}, {"layers": 2}),
        only=({}, {"set": ("MNIST-5000",)}),
    ),
    deviations=(*DEVIATIONS, "The components of CIFAR-10 are those of all its training images."),
)

_DECAYS_OF_S3 = (1e-3, 1e-2, 1e-4, 1e-5, 1e-1, 1e-6, 1.0)
_JACOBIANS_OF_S3 = (0.1, 0.03, 0.3, 0.01, 1.0, 0.001, 10.0)
"""The paper's, and two between: at 1 the networks of 256 samples end at chance."""

# loss, layers → samples → no regularization, WD, LM
_TABLE: dict[tuple[str, int], dict[int, tuple[float, float, float]]] = {
    ("hinge", 2): {256: (88.37, 89.88, 93.83), 512: (93.99, 94.62, 95.49), 1024: (95.79, 96.57, 97.45)},
    ("hinge", 3): {256: (87.22, 89.31, 93.22), 512: (93.41, 93.97, 95.76), 1024: (95.46, 96.45, 97.60)},
    ("CCE", 2): {256: (88.45, 88.45, 92.77), 512: (92.29, 93.14, 95.25), 1024: (95.38, 95.79, 96.89)},
    ("CCE", 3): {256: (89.05, 89.05, 93.10), 512: (91.81, 93.02, 95.32), 1024: (95.11, 95.86, 97.14)},
}


def _arms() -> tuple[Arm, ...]:
    found: list[Arm] = []
    for loss in LOSSES:
        found += [
            Arm(f"{loss}, no reg.", {"loss": LOSSES[loss], "optimizer": sgd(0.01)}),
            weight_decay(loss, name=f"{loss}, WD", penalties=_DECAYS_OF_S3),
            large_margin(loss, name=f"{loss}, LM", form="sum", penalties=_JACOBIANS_OF_S3),
        ]
    return (*found, ours(), wide_margin())


def _of_cells() -> tuple[Claim, ...]:
    claims = []
    for (loss, layers), row in _TABLE.items():
        for samples, (nothing, decay, margin) in row.items():
            where = {"samples": samples, "layers": layers}
            words = f"{samples} samples, {layers} layers, {loss}"
            gain = round(margin - nothing, 2)
            claims += [
                gap(f"{words}: LM minus WD", f"{loss}, LM", f"{loss}, WD", round(margin - decay, 2), where=where),
                gap(f"{words}: LM minus no regularization", f"{loss}, LM", f"{loss}, no reg.", gain, where=where),
                value(f"{words}: LM", f"{loss}, LM", margin, where=where),
            ]
    return tuple(claims)


TITLE = "Test accuracy over the number of training samples (sokolic, Table I)"
SMALL: Settings = {
    "data": {"name": "digits", "validation": 100, "test": 100},
    "network": {"size": 8, "channels": 2},
} | {"batch": 16, "steps": 2}
COUNTS = (256, 512, 1024)

S3 = Study(
    **named("S3", "sokolic, Table I", "Three regularizations of a convolutional network"),
    question="Does the Jacobian regularizer (LM) beat weight decay (WD) with few samples, whatever the loss?",
    arms=_arms(),
    settings={
        "data": {"name": "mnist", "validation": 5000},
        "network": {"name": "sokolic-cnn"},
        "schedule": {"name": "steps", "at": (0.34, 0.67), "factors": (0.1, 0.05)},
        "batch": 32,
    },
    axes={
        "samples": {count: {"data.train": count, "steps": 100 * count // 32} for count in COUNTS},
        "layers": axis("network.layers", (2, 3)),
    },
    claims=(
        *(order(f"{loss}: LM above WD everywhere", f"{loss}, LM", f"{loss}, WD", quote=Q_WD) for loss in LOSSES),
        *(order(f"{loss}: {AT_LEAST}", f"{loss}, WD", f"{loss}, no reg.", slack=TIE, quote=Q_WD) for loss in LOSSES),
        order("hinge above CCE with WD", "hinge, WD", "CCE, WD", quote=Q_HINGE),
        order("hinge above CCE with LM", "hinge, LM", "CCE, LM", quote=Q_HINGE),
        *_of_cells(),
    ),
    paper=tuple(
        {"arm": f"{loss}, {name}", "samples": samples, "layers": layers, "accuracy": round(accuracy / 100, 4)}
        for (loss, layers), row in _TABLE.items()
        for samples, accuracies in row.items()
        for name, accuracy in zip(("no reg.", "WD"), accuracies)
    ),
    figures=(accuracy("samples", TITLE, "training samples", split="layers", log_x=True),),
    scales=scales(
        "60 digits of 8 × 8 pixels, 2 channels, 2 steps, no search",
        "mnist-5k, 6 channels, 160 steps, then 1024 samples and 3 layers are left out, then the search (2 "
        "cells, at 256 samples); two cores",
        "the search is cut to 4 cells, each with 3 seeds; one GPU",
        "a search for each condition; one GPU",
        **effort(minutes=(0.1, 15, 80, 300), seeds=(1, 2, 5, 5), cells=(1, 2, 4, 7), search_seeds=(1, 1, 3, 3)),
        settings=(SMALL, {"data": {"name": "mnist-5k", "validation": 500}, "network": {"channels": 6}}),
        of_values=(
            {"samples": {count: {"data.train": 60, "steps": 2} for count in COUNTS}},
            {"samples": {256: {"steps": 160}, 512: {"steps": 160}}},
        ),
        search_at=(None, {"samples": 256, "layers": 2}),
        only=({}, {"samples": (256, 512), "layers": (2,)}),
    ),
    deviations=(*DEVIATIONS, "Two values of λ are searched between the paper's."),
)
