"""E15: the mean distance to the boundary while CIFAR-10 models train (elsayed, B.2, Fig. 17 to 19)."""

from __future__ import annotations

import dataclasses

from widemargin.studies.claims import order, value
from widemargin.studies.effects import Ratio
from widemargin.studies.elsayed import cifar10
from widemargin.studies.figure import Figure
from widemargin.studies.schema import Claim, ScaleName, Study
from widemargin.studies.settings import Settings

LAYERS = {"input": "input", "layer 7": cifar10.LAYER_7, "output": "output"}
LAYERS_OF_10 = {"input": "input", "layer 7": cifar10.PLACES_OF_10[1], "output": "output"}
ARMS = ("cross-entropy", "margin l_2", "ours l_2")
AT_INPUT = {"curve": "end", "place": "input", "part": "test"}
WATCH: Settings = {
    "at": tuple(LAYERS.values()),
    "p": 2.0,
    "scores": "softmax",
    "classes": 1,
    "every": 500,
    "count": 1280,
}


def _places(name: str) -> tuple[str, ...]:
    """The place, in the network of depth 28 and in the smaller ones."""
    return tuple({LAYERS[name], LAYERS_OF_10[name]})


SCALES = cifar10.scales(hours=0.5, arms=ARMS)
_WATCHED: dict[ScaleName, Settings] = {
    "smoke": {"watch": {**WATCH, "at": tuple(LAYERS_OF_10.values()), "every": 1, "count": 5}},
    "quick": {"watch": {**WATCH, "at": tuple(LAYERS_OF_10.values()), "every": 20, "count": 50}},
    "budget": {"watch": {**WATCH, "at": tuple(LAYERS_OF_10.values()), "every": 100}},
    "paper": {"watch": WATCH},
}

E15 = Study(
    id="E15",
    source="elsayed, Fig. 17 to 19",
    title="Distances over training, CIFAR-10",
    question="Does training for margins raise the distance to the boundary where it is measured, and on test data too?",
    task="evolution",
    arms=tuple(arm for arm in cifar10.FIVE if arm.name in ARMS),
    settings=cifar10.SETTINGS,
    claims=(
        value(
            "at the input, on test data, at the end: margin",
            "margin l_2",
            100.0,
            metric="mean",
            where=AT_INPUT,
            relative=True,
        ),
        value(
            "at the input, on test data, at the end: cross-entropy",
            "cross-entropy",
            70.0,
            metric="mean",
            where=AT_INPUT,
            relative=True,
        ),
        Claim(
            text="at the input, on test data, at the end: margin over cross-entropy",
            effect=Ratio(metric="mean", arm="margin l_2", against="cross-entropy", where=AT_INPUT),
            reported=100 / 70,
            relative=True,
        ),
        *(
            order(
                f"margin above cross-entropy at {name}, {part}",
                "margin l_2",
                "cross-entropy",
                metric="mean",
                where={"curve": "end", "place": _places(name), "part": part},
            )
            for name in LAYERS
            for part in ("train", "validation", "test")
        ),
    ),
    figures=tuple(
        Figure(
            "step",
            "mean",
            f"Mean distance to the boundary at {name} (elsayed, Fig. {number})",
            "step",
            "mean l_2 distance, linearised, of softmax scores",
            where={"curve": "distance", "place": _places(name)},
            split="part",
        )
        for name, number in zip(LAYERS, (17, 18, 19))
    ),
    scales={
        name: dataclasses.replace(SCALES[name], settings={**SCALES[name].settings, **_WATCHED[name]}) for name in SCALES
    },
    deviations=(
        "The paper does not say which norm its figures show, nor which margin model: here both are l_2.",
        "The paper averages over each mini-batch; here over the first 1,280 samples of each part, in evaluation mode.",
        *cifar10.DEVIATIONS,
    ),
)
