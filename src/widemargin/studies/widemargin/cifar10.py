"""W4: `WideMargin` on all of CIFAR-10, with crops and flips, for a ResNet-18 and a WRN-16-4 with batch norm."""

from __future__ import annotations

from widemargin.studies.claims import order
from widemargin.studies.schema import Figure, Study, accuracy, bars, effort, named, scales
from widemargin.studies.settings import Settings
from widemargin.studies.widemargin import goals
from widemargin.studies.widemargin.goals import CROSS_ENTROPY, JACOBIAN, SHARE, WIDE

NETWORKS: dict[str, Settings] = {
    "ResNet-18": {"network": {"name": "resnet-18"}},
    "WRN-16-4": {"network": {"name": "wrn-28-10", "depth": 16, "widen": 4}},
}
CLEAN, FLIPPED = {"flips": 0.0}, {"flips": 0.4}
_MEASURE: Settings = {
    "measure": [
        {**goals.ATTACK, "epsilons": (0.0, 0.0025, 0.005, 0.01, 0.02, 0.04), "count": 500},
        {"kind": "minimal", "p": 2.0, "steps": 20, "count": 100},
    ]
}
_SYNTHETIC: Settings = {"name": "synthetic", "shape": (3, 8, 8), "samples": 24, "validation": 4, "test": 10}
_TINY_NETWORKS: dict[str, Settings] = {
    "ResNet-18": {"network": {"widths": (4,), "blocks": (1,)}},
    "WRN-16-4": {"network": {"depth": 10, "widen": 1, "base": 4}},
}
_TINY_MEASURE: Settings = {
    "measure": [
        {**goals.ATTACK, "epsilons": (0.0, 0.16), "count": 4, "steps": 1},
        {"kind": "minimal", "p": 2.0, "steps": 1, "count": 4},
    ]
}

W4 = Study(
    **named("W4", "widemargin, CIFAR-10", "WideMargin on all of CIFAR-10", "augmented"),
    question="With many samples and augmentation, does WideMargin still help, and does it cost accuracy?",
    arms=goals.arms(CROSS_ENTROPY, WIDE, SHARE, JACOBIAN, second_order="second-point", share=1.0),
    settings={
        "data": {"name": "cifar10", "standardize": True, "validation": 5000},
        "loss": {"name": "cross-entropy"},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        "schedule": {"name": "warm-up", "epochs": 0.2, "then": {"name": "cosine"}},
        "epochs": 30,
        "batch": 256,
        "augmentation": {"crop": 4, "flip": True},
        "precision": "bfloat16",
        "channels_last": True,
        **_MEASURE,
    },
    axes={"network": NETWORKS, "flips": {flips: {"data.flips": flips} for flips in (0.0, 0.4)}},
    claims=(
        goals.gain("without flips at most 0.3 points below cross-entropy", -0.3, where=CLEAN),
        goals.gain("share 1/8: at most 0.3 points below the whole form", -0.3, arm=SHARE, against=WIDE, where=CLEAN),
        order("with 40 % flips above cross-entropy", WIDE, CROSS_ENTROPY, where=FLIPPED),
        goals.attacked(
            "accuracy under PGD, at the ε that halves cross-entropy's, at least 10 points above it", 10.0, where=CLEAN
        ),
        goals.ratio("mean distance at least 1.5 times cross-entropy's", 1.5, "mean distance", where=CLEAN),
        goals.ratio(
            "share 1/8: mean distance at most 10 % below the whole form",
            0.9,
            "mean distance",
            arm=SHARE,
            against=WIDE,
            where=CLEAN,
        ),
    ),
    figures=(
        accuracy("flips", "Test accuracy over the share of flipped labels", "flipped labels", split="network"),
        Figure(
            "epsilon",
            "accuracy",
            "Accuracy under PGD with 20 steps, without flips",
            "ε/√D, standardised images",
            "test accuracy",
            percent=True,
            where={"curve": goals.PGD, **CLEAN},
            split="network",
        ),
        bars("network", "mean distance", "Mean distance to the boundary, without flips", where=CLEAN),
    ),
    scales=scales(
        "synthetic images, a tiny ResNet, one epoch; one core",
        "digits in three colours are not CIFAR-10: 400 synthetic images, tiny networks, two epochs; two cores",
        "8 epochs instead of 30; one H200",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 2, 25, 100), seeds=(1, 2, 3, 3)),
        settings=(
            {"data": _SYNTHETIC, "epochs": 1, "batch": 10, "precision": "float32", **_TINY_MEASURE},
            {"data": {**_SYNTHETIC, "samples": 400}, "epochs": 2, "batch": 50, "precision": "float32", **_TINY_MEASURE},
            {"epochs": 8},
        ),
        of_values=({"network": _TINY_NETWORKS},) * 2,
        only=({"network": ("ResNet-18",)},),
    ),
    deviations=(
        "`fit` takes a share of 1/8 by itself for so many samples; the arm WideMargin has the whole batch (`share=1`).",
        "Thresholds are goals that were set before the runs; there is no paper to compare with.",
        "The Jacobian regularizer takes its gradient by a second point instead of a double backward.",
        "Attacks are not clipped to a range: inputs are standardised. ε is in units of √D, the length of an input.",
    ),
)
