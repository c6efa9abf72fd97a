"""E16: the time of a margin step, relative to cross-entropy (elsayed, §4.1)."""

from __future__ import annotations

from widemargin.studies.claims import value
from widemargin.studies.elsayed.cifar10 import PLACES, PLACES_OF_10
from widemargin.studies.schema import Arm, Study, bars, effort, named, scales
from widemargin.studies.settings import Settings

IMAGES: Settings = {"shape": [3, 32, 32], "classes": 10, "batch": 128}
LOSS: Settings = {"name": "large-margin", "p": 2.0, "at": PLACES}
OURS: Settings = {**LOSS, "classes": 1}
PRINTED: Settings = {**LOSS, "gamma": 10_000.0, "scores": "softmax", "cross_entropy": 1.0, "stabilize": None}
_WRN_10: Settings = {"network": {"depth": 10, "widen": 1, "base": 8}, "loss": {"at": PLACES_OF_10}}
CLAIM = "a margin step over a cross-entropy step: batch norm, 9 classes, 5 places, cross-entropy term"
Q_COST = (
    "Using these optimizations, we found, for example, that CIFAR-10 training is around 20% more expensive in "
    "wall-clock time for the margin model compared to cross-entropy, measured on the same NVIDIA p100 GPU."
)
TIMES = "Time of a margin step over that of a cross-entropy step (elsayed, §4.1)"

E16 = Study(
    **named("E16", "elsayed, §4.1", "The cost of a margin step", "step-time"),
    question="How much longer than a cross-entropy step does a margin step take, on the CIFAR-10 network?",
    arms=(
        Arm(name="margin, 9 classes", settings={"loss": {**PRINTED, "classes": "all", "aggregate": "sum"}}),
        Arm(name="margin, strongest class", settings={"loss": {**PRINTED, "classes": 1}}),
        Arm("ours, strongest class", {"loss": OURS}, ours=True),
        Arm("ours, strongest class, group norm", {"loss": OURS, "network": {"name": "wrn-28-10-gn"}}, ours=True),
    ),
    settings={**IMAGES, "network": {"name": "wrn-28-10"}, "precision": "float32", "warm": 3, "repeats": 10},
    claims=(value(CLAIM, "margin, 9 classes", 1.20, metric="ratio", relative=True, quote=Q_COST),),
    figures=(bars("arm", "ratio", TIMES, y_title="ratio of times"),),
    scales=scales(
        "WRN-10 with 2 channels, 4 images, one pair of steps",
        "WRN-10 with 8 channels, 32 images; two cores: no measure of the claim, which is of a GPU",
        "5 pairs of steps instead of 10; one H200",
        "nothing is cut; one GPU",
        **effort(minutes=(0.05, 2, 2, 3), seeds=(1, 2)),
        settings=(
            {**_WRN_10, "batch": 4, "warm": 1, "repeats": 1, "network.base": 2, "network.groups": 2},
            {**_WRN_10, "batch": 32, "repeats": 5},
            {"repeats": 5},
        ),
    ),
    deviations=(
        "The paper measured on a P100, and whole trainings; here steps on data that are on the device already, one of "
        "each loss in turn, both with SGD.",
        "The paper's number is of all 9 classes; the strongest class alone is beside it.",
        "The arithmetic says 4, not 1.20: a step of cross-entropy is one pass forward and a backward pass of two (to "
        "the activations and to the weights), three units; 9 classes take 9 more backward passes to the activations, "
        "nine units: (3 + 9)/3 = 4, whatever the GPU.",
    ),
)
