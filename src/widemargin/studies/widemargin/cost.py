"""W5: the cost of `WideMargin`, as ratios to cross-entropy: the time of a step, and peak memory."""

from __future__ import annotations

from widemargin.studies.schema import Arm, Study, bars, effort, named, scales
from widemargin.studies.settings import Settings
from widemargin.studies.widemargin import goals
from widemargin.studies.widemargin.goals import SHARE, WIDE

JACOBIAN = "Jacobian, second point"
_IMAGES: Settings = {"shape": (3, 32, 32), "classes": 10}
_VIT: Settings = {"name": "vit", "size": 32, "patch": 4, "width": 384, "layers": 12, "heads": 6}
NETWORKS: dict[str, Settings] = {
    "WRN-28-10 GN": {**_IMAGES, "network": {"name": "wrn-28-10-gn"}, "batch": 128},
    "WRN-28-10 BN": {**_IMAGES, "network": {"name": "wrn-28-10"}, "batch": 128},
    "ViT-S": {**_IMAGES, "network": _VIT, "batch": 256},
}
_TINY: dict[str, Settings] = {
    **{f"WRN-28-10 {norm}": {"network": {"depth": 10, "widen": 1}, "batch": 8} for norm in ("GN", "BN")},
    "ViT-S": {"network": {"width": 16, "layers": 1, "heads": 2}, "batch": 8},
}
_MEMORY = 1.9, 1.3


def _arms() -> tuple[Arm, ...]:
    regularizer = {"name": "jacobian-frobenius", "weight": 0.03, "second_order": "second-point"}
    return (*goals.arms(WIDE, SHARE), Arm(JACOBIAN, {"regularizers": [regularizer]}))


W5 = Study(
    **named("W5", "widemargin, cost", "Cost of WideMargin", "step-cost"),
    question="How much longer is a training step of WideMargin than one of cross-entropy, and how much memory is it?",
    arms=_arms(),
    settings={"loss": {"name": "cross-entropy"}, "warm": 6, "repeats": 15},
    axes={
        "network": NETWORKS,
        "precision": {name: {"precision": name} for name in ("float32", "bfloat16")},
        "launch": {name: {"cuda_graph": name == "CUDA graph"} for name in ("eager", "CUDA graph")},
    },
    claims=(
        goals.at_most("in full at most 2.35 times a step of cross-entropy", 2.35, "ratio"),
        goals.at_most("with a share of 1/8 at most 1.25 times", 1.25, "ratio", arm=SHARE),
        goals.at_most("the Jacobian regularizer by a second point at most 2.4 times", 2.4, "ratio", arm=JACOBIAN),
        goals.at_most("peak memory in full at most 1.9 times", _MEMORY[0], "memory ratio"),
        goals.at_most("peak memory with a share of 1/8 at most 1.3 times", _MEMORY[1], "memory ratio", arm=SHARE),
    ),
    figures=(
        bars("network", "ratio", "Time of a step, in steps of cross-entropy", "", "ratio"),
        bars("network", "memory ratio", "Peak memory, in that of cross-entropy", "", "ratio"),
    ),
    scales=scales(
        "tiny networks, 2 pairs of steps; one core",
        "tiny networks, 5 pairs of steps; two cores",
        "nothing is cut; one H200, one trial at a time",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 1, 4, 4), seeds=(1, 2, 3, 3)),
        settings=({"warm": 1, "repeats": 2}, {"warm": 1, "repeats": 5}),
        of_values=({"network": _TINY},) * 2,
        only=({"launch": ("eager",), "precision": ("float32",)},) * 2,
    ),
    deviations=(
        "Thresholds are goals that were set before the runs; there is no paper to compare with.",
        "The largest ratio over networks, precisions and ways to launch counts. The optimizer's step is left out.",
    ),
)
