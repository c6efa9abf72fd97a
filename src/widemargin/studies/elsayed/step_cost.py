"""E16: the cost of a margin step (elsayed, §4.1)."""

from __future__ import annotations

from widemargin.studies.claims import value
from widemargin.studies.elsayed import cifar10
from widemargin.studies.schema import Arm, Study, bars, effort, named, scales
from widemargin.studies.settings import Settings

IMAGES: Settings = {"shape": [3, 32, 32], "classes": 10, "batch": 128}
LOSS: Settings = {"name": "large-margin", "p": 2.0, "at": cifar10.PLACES}
PRINTED: Settings = {**LOSS, "gamma": 10_000.0, "scores": "softmax", "cross_entropy": 1.0, "stabilize": None}
SMALL: Settings = {"network": {"depth": 10, "widen": 1, "base": 8}, "loss": {"at": cifar10.PLACES_OF_10}}
CLAIM = "a margin step over a cross-entropy step: batch norm, 9 classes, 5 places, cross-entropy term"
TITLE = "Time of a margin step over that of a cross-entropy step (elsayed, §4.1)"

E16 = Study(
    **named("E16", "elsayed, §4.1", "The cost of a margin step", "step-time"),
    question="How much longer than a cross-entropy step does a margin step take, on the CIFAR-10 network?",
    arms=(
        Arm(name="margin, 9 classes", settings={"loss": {**PRINTED, "classes": "all", "aggregate": "sum"}}),
        Arm(name="margin, strongest class", settings={"loss": {**PRINTED, "classes": 1}}),
        Arm(name="ours, strongest class", settings={"loss": {**LOSS, "classes": 1}}, ours=True),
        Arm(
            name="ours, strongest class, group norm",
            settings={"loss": {**LOSS, "classes": 1}, "network": {"name": "wrn-28-10-gn"}},
            ours=True,
        ),
    ),
    settings={**IMAGES, "network": {"name": "wrn-28-10"}, "precision": "float32", "warm": 3, "repeats": 10},
    claims=(value(CLAIM, "margin, 9 classes", 1.20, metric="ratio", relative=True),),
    figures=(bars("arm", "ratio", TITLE, y_title="ratio of times"),),
    scales=scales(
        "WRN-10 with 2 channels, 4 images, one pair of steps",
        "WRN-10 with 8 channels, 32 images; two cores: no measure of the claim, which is of a GPU",
        "5 pairs of steps instead of 10; one H200",
        "nothing is cut; one GPU",
        **effort(minutes=(0.05, 2, 2, 3), seeds=(1, 2)),
        settings=(
            {**SMALL, "batch": 4, "warm": 1, "repeats": 1, "network.base": 2, "network.groups": 2},
            {**SMALL, "batch": 32, "repeats": 5},
            {"repeats": 5},
        ),
    ),
    deviations=(
        "The paper measured on a P100, and whole trainings; here steps on data that are on the device already, one of "
        "each loss in turn, both with SGD.",
        "The paper's number is of all 9 classes; the strongest class alone is beside it.",
    ),
)
