"""E15: the mean distance to the boundary while CIFAR-10 models train (elsayed, B.2, Fig. 17 to 19)."""

from __future__ import annotations

import functools

from widemargin.studies.claims import order, value
from widemargin.studies.effects import Ratio
from widemargin.studies.elsayed import cifar10
from widemargin.studies.schema import Claim, Figure, Study, named
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
SMALL: Settings = {**WATCH, "at": tuple(LAYERS_OF_10.values())}
END = "at the input, on test data, at the end:"
mean = functools.partial(value, metric="mean", where=AT_INPUT, relative=True)


def _places(name: str) -> tuple[str, ...]:
    """The place, in the network of depth 28 and in the smaller ones."""
    return tuple(dict.fromkeys((LAYERS[name], LAYERS_OF_10[name])))


def _figure(name: str, number: int) -> Figure:
    title = f"Mean distance to the boundary at {name} (elsayed, Fig. {number})"
    y_title = "mean l_2 distance, linearised, of softmax scores"
    where = {"curve": "distance", "place": _places(name)}
    return Figure("step", "mean", title, "step", y_title, where=where, split="part")


def _above(name: str, part: str) -> Claim:
    where = {"curve": "end", "place": _places(name), "part": part}
    text = f"margin above cross-entropy at {name}, {part}"
    return order(text, "margin l_2", "cross-entropy", metric="mean", where=where)


E15 = Study(
    **named("E15", "elsayed, Fig. 17 to 19", "Distances over training, CIFAR-10", "evolution"),
    question="Does training for margins raise the distance to the boundary where it is measured, and on test data too?",
    arms=tuple(arm for arm in cifar10.FIVE if arm.name in ARMS),
    settings=cifar10.SETTINGS,
    claims=(
        mean(f"{END} margin", "margin l_2", 100.0),
        mean(f"{END} cross-entropy", "cross-entropy", 70.0),
        Claim(
            text=f"{END} margin over cross-entropy",
            effect=Ratio(metric="mean", arm="margin l_2", against="cross-entropy", where=AT_INPUT),
            reported=100 / 70,
            relative=True,
        ),
        *(_above(name, part) for name in LAYERS for part in ("train", "validation", "test")),
    ),
    figures=tuple(_figure(name, number) for name, number in zip(LAYERS, (17, 18, 19))),
    scales=cifar10.scales(
        hours=0.5,
        arms=ARMS,
        more=(
            {"watch": {**SMALL, "every": 1, "count": 5}},
            {"watch": {**SMALL, "every": 20, "count": 50}},
            {"watch": {**SMALL, "every": 100}},
            {"watch": WATCH},
        ),
    ),
    deviations=(
        "The paper does not say which norm its figures show, nor which margin model: here both are l_2.",
        "The paper averages over each mini-batch; here over the first 1,280 samples of each part, in evaluation mode.",
        *cifar10.DEVIATIONS,
    ),
)
