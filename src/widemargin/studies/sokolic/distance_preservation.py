"""S4: distances between outputs, and bounds of the input margin, on trained networks (sokolic, Theorems 2, 3, 5)."""

from __future__ import annotations

import functools

from widemargin.studies.claims import value
from widemargin.studies.schema import Arm, Claim, Study, bars, effort, named, scales
from widemargin.studies.settings import Settings, overlay, sgd

PLANE: Settings = {
    "data": {"name": "toy", "validation": 100},
    "network": {"name": "sokolic-mlp", "layers": 2, "first": 12, "higher": 6}
    | {"inputs": 2, "classes": 2, "classifier_bias": True},
    "optimizer": {"name": "adam", "lr": 0.01},
    "steps": 600,
    "batch": None,
}
"""Two-layer network on two half-moons; the optimizer is ours."""

_MNIST: Settings = {
    "data": {"name": "mnist", "validation": 5000, "train": 5000},
    "optimizer": {**sgd(0.01), "weight_decay": 2e-3},
} | {"steps": 2000, "batch": 128, "margins": 200, "exact": False}
_MLP: Settings = {"network": {"name": "sokolic-mlp", "layers": 2}, "pairs": 50}
_CNN: Settings = {"network": {"name": "sokolic-cnn", "layers": 2}, "loss": {"name": "cross-entropy"}, "pairs": 10}
PLANE_ARM, MLP_ARM, CNN_ARM = "plane, 2 layers", "MNIST, fully connected", "MNIST, convolutional"
ARMS = (
    Arm(PLANE_ARM, overlay(PLANE, {"pairs": 200, "margins": 300, "exact": True})),
    Arm(MLP_ARM, overlay(_MNIST, _MLP)),
    Arm(CNN_ARM, overlay(_MNIST, _CNN)),
)


def _claims(arm: str) -> tuple[Claim, ...]:
    said = {
        "theorem 2": "pairs with f(x′) − f(x) = J̄(x′ − x) up to rounding (Theorem 2)",
        "theorem 3": "pairs with ‖J̄(x′ − x)‖ ≤ Π‖W‖_2·‖x′ − x‖ ≤ Π‖W‖_F·‖x′ − x‖ (Theorem 3)",
        "theorem 5": "samples with γ_in ≥ the Jacobian bound (19) ≥ γ_out/Π‖W‖_F (20) (Theorem 5)"
        if arm.startswith("plane")
        else "samples with γ_in (attacked) ≥ γ_out/Π‖W‖_2, and (19) (estimated) ≥ γ_out/Π‖W‖_F (Theorem 5)",
    }
    return tuple(value(f"{arm}: {words}", arm, 100, metric=metric, tolerance=0) for metric, words in said.items())


_SMALL: Settings = {"data": {"name": "digits", "validation": 100, "train": 100}} | {
    "steps": 30,
    "batch": 20,
    "pairs": 3,
    "margins": 20,
}
_QUICK: Settings = {"data": {"name": "mnist-5k", "validation": 500, "train": 1000}} | {
    "steps": 100,
    "pairs": 3,
    "margins": 20,
}
LINKS = "Each link of the chain (12), in parts of ‖f(x′) − f(x)‖ (sokolic, Theorem 3)"
MARGINS = "The input margin and its bounds (sokolic, Theorem 5)"
median = functools.partial(bars, log_y=True)

S4 = Study(
    **named("S4", "sokolic, Theorems 2, 3 and 5", "How networks keep distances and margins", "distance-preservation"),
    question="Do the theorems hold on trained networks, and how sharp are their bounds?",
    arms=ARMS,
    settings={"loss": {"name": "hinge"}},
    claims=tuple(claim for arm in ARMS for claim in _claims(arm.name)),
    figures=(
        median("link", "times", LINKS, y_title="times ‖f(x′) − f(x)‖, median", where={"curve": "pairs"}),
        median("bound", "distance", MARGINS, y_title="distance, median", where={"curve": "margins"}),
    ),
    scales=scales(
        "few samples, digits of 8 × 8 pixels for MNIST, small networks, few steps",
        "mnist-5k, then widths, steps, pairs and samples are cut; two cores",
        "steps of the MNIST networks cut from 2,000, then their samples from 5,000, then pairs and margins, "
        "then the channels of the convolutional one from 32 to 8; one core",
        "the paper trains no network for these; two cores",
        **effort(minutes=(0.1, 5, 15, 120), seeds=(1, 2, 2)),
        of_arms=(
            {
                PLANE_ARM: {"network": {"first": 5, "higher": 3}, "steps": 40, "pairs": 5, "margins": 4},
                MLP_ARM: {**_SMALL, "network": {"inputs": 64, "first": 32, "higher": 16}},
                CNN_ARM: {**_SMALL, "network": {"size": 8, "channels": 4}},
            },
            {
                PLANE_ARM: {"steps": 300, "pairs": 50, "margins": 50},
                MLP_ARM: {**_QUICK, "network": {"first": 64, "higher": 32}},
                CNN_ARM: {**_QUICK, "network": {"channels": 4}},
            },
            {
                MLP_ARM: {"data.train": 2000, "steps": 300, "pairs": 6, "margins": 50},
                CNN_ARM: {"data.train": 2000, "network": {"channels": 8}, "steps": 150, "pairs": 1, "margins": 10},
            },
        ),
    ),
    deviations=(
        "The paper proves the theorems and measures nothing: here they are checked on trained networks. f is the whole "
        "network, its classifier included, in Theorems 2 and 3.",
        "γ_in and (19) can be computed exactly only on the plane. On MNIST γ_in is replaced by the distance of an "
        "attack, which is above it, and (19) by an estimate along directions (errata 6).",
        "The convolutional network is trained by cross-entropy: with 8 channels one of two died by the hinge.",
        "Convolutions count as the operators they are, and max-pools with their Lipschitz constant.",
    ),
)
