"""S3: convolutional networks on few MNIST images, three regularizations, two losses (sokolic, Table I)."""

from __future__ import annotations

from widemargin.studies.claims import gap, order, value
from widemargin.studies.figure import accuracy
from widemargin.studies.schema import Arm, Claim, Study, axis, named, scales
from widemargin.studies.settings import Settings, sgd
from widemargin.studies.sokolic import regularized

_DECAYS = (1e-3, 1e-2, 1e-4, 1e-5, 1e-1, 1e-6, 1.0)
_JACOBIANS = (0.1, 0.03, 0.3, 0.01, 1.0, 0.001, 10.0)
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
    for loss in regularized.LOSSES:
        found += [
            Arm(f"{loss}, no reg.", {"loss": regularized.LOSSES[loss], "optimizer": sgd(0.01)}),
            regularized.weight_decay(loss, name=f"{loss}, WD", penalties=_DECAYS),
            regularized.large_margin(loss, name=f"{loss}, LM", form="sum", penalties=_JACOBIANS),
        ]
    return (*found, regularized.ours())


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
        order("hinge: LM above WD everywhere", "hinge, LM", "hinge, WD"),
        order("CCE: LM above WD everywhere", "CCE, LM", "CCE, WD"),
        order("hinge: WD above no regularization everywhere", "hinge, WD", "hinge, no reg."),
        order("CCE: WD above no regularization everywhere", "CCE, WD", "CCE, no reg."),
        order("hinge above CCE with WD", "hinge, WD", "CCE, WD"),
        order("hinge above CCE with LM", "hinge, LM", "CCE, LM"),
        *_of_cells(),
    ),
    figures=(accuracy("samples", TITLE, "training samples", split="layers", log_x=True),),
    scales=scales(
        minutes=(0.1, 15, 15, 300),
        settings=(SMALL, {"data": {"name": "mnist-5k", "validation": 500}, "network": {"channels": 6}}),
        of_values=(
            {"samples": {count: {"data.train": 60, "steps": 2} for count in COUNTS}},
            {"samples": {256: {"steps": 160}, 512: {"steps": 160}}},
        ),
        seeds=(1, 2, 3, 5),
        cells=(1, 2, 4, 7),
        search_at=(None, {"samples": 256, "layers": 2}, {"samples": 256, "layers": 2}),
        only=({}, {"samples": (256, 512), "layers": (2,)}),
        note=(
            "60 digits of 8 × 8 pixels, 2 channels, 2 steps, no search",
            "mnist-5k, 6 channels, 160 steps, then 1024 samples and 3 layers are left out, then the search (2 "
            "cells, at 256 samples); two cores",
            "the search is cut to 4 cells, at 256 samples and 2 layers; one GPU",
            "a search for each condition; one GPU",
        ),
    ),
    deviations=(*regularized.DEVIATIONS, "Two values of λ are searched between the paper's."),
)
