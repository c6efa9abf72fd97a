"""Shared parts of elsayed's CIFAR-10 studies: WRN-28-10, the training, the five models, and ours (§4.3, B.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from widemargin.studies import schema
from widemargin.studies.elsayed.mnist import NORMS
from widemargin.studies.schema import Arm, Scale, ScaleName, Search, Study
from widemargin.studies.settings import Settings, overlay, sgd

LAYER_7, LAYER_13, LAYER_19 = "group1.block3.conv2", "group2.block2.conv2", "group3.block1.conv2"
PLACES = ("input", LAYER_7, LAYER_13, LAYER_19, "output")
"""Input, output and three evenly spaced ones of the 25 convolutions on the way."""

PLACES_OF_10 = ("input", "group1.block1.conv2", "group2.block1.conv2", "group3.block1.conv2", "output")
"""The same in a network of depth 10 or 16."""

SETTINGS: Settings = {
    "data": {"name": "cifar10", "validation": 5000, "flips": 0.0},
    "network": {"name": "wrn-28-10"},
    "loss": {"name": "augmented"},
    "schedule": {"name": "exponential", "factor": 0.9, "every": 0.04},
    "steps": 50_000,
    "batch": 128,
}
SMALL: Settings = {
    "data": {"name": "synthetic", "shape": [3, 32, 32], "samples": 40, "validation": 10},
    "network": {"depth": 10, "widen": 1, "base": 2},
    "steps": 1,
    "batch": 10,
}
CUT: Settings = {"network": {"depth": 16, "widen": 4}, "steps": 3000}
_RATES: Search = {"optimizer.lr": (0.01, 0.03, 0.1)}
EVERY: Search = {"schedule.every": (0.04, 0.4)}
"""A decay of 0.9 every 2,000 or every 20,000 of 50,000 steps."""


def _arm(name: str, loss: Settings, optimizer: Settings, search: Search, *, ours: bool = False) -> Arm:
    settings = {"loss": {"name": "augmented", "loss": loss}, "optimizer": optimizer}
    return Arm(name, settings, {**EVERY, **search}, ours=ours)


def margin(norm: str) -> Arm:
    """The printed form: softmax scores, all classes, their sum, γ of 5,000 to 20,000, cross-entropy of weight 1."""
    loss: Settings = {"name": "large-margin", "p": NORMS[norm], "at": PLACES, "gamma": 10_000.0, "scores": "softmax"}
    printed: Settings = {"classes": "all", "aggregate": "sum", "cross_entropy": 1.0, "stabilize": None}
    gammas = {"loss.loss.gamma": (10_000.0, 5_000.0, 20_000.0)}
    return _arm(f"margin {norm}", {**loss, **printed}, {"name": "rmsprop", "lr": 0.001}, gammas)


def ours(norm: str) -> Arm:
    """The library's default loss: logits, scale-free, the strongest other class, with cross-entropy's SGD."""
    gamma = {"l_inf": 0.03, "l_1": 10.0, "l_2": 0.5}[norm]
    loss = {"name": "large-margin", "p": NORMS[norm], "at": PLACES, "gamma": gamma, "classes": 1}
    return _arm(f"ours {norm}", loss, sgd(0.01), _RATES, ours=True)


MARGINS = tuple(f"margin {norm}" for norm in NORMS)
FIVE: tuple[Arm, ...] = (
    _arm("cross-entropy", {"name": "cross-entropy"}, sgd(0.01), _RATES),
    _arm("hinge", {"name": "hinge", "gamma": 1.0, "cross_entropy": 0.01}, sgd(0.01), _RATES),
    *(margin(norm) for norm in NORMS),
    *(ours(norm) for norm in NORMS),
)


def scales(
    *,
    more: Sequence[Settings] = ({}, {}, {}, {}),
    hours: float | int = 1,
    only: Sequence[Search] = (),
    of_values: Sequence[Mapping[str, Mapping[float, Settings]]] = (),
    search_at: Settings | None = None,
    arms: tuple[str, ...] | None = None,
) -> dict[ScaleName, Scale]:
    """The four scales; `more` settings, `only` and `of_values` for each; `hours` of the budget on a GPU."""
    cut_margins = {
        arm.name: {"loss.loss.classes": 1, "loss.loss.at": PLACES_OF_10}
        for arm in FIVE
        if ("margin" in arm.name or arm.ours) and (arms is None or arm.name in arms)
    }
    quick = overlay(SMALL, {"data.samples": 600, "data.validation": 100, "network.base": 8, "steps": 60, "batch": 50})
    return schema.scales(
        minutes=(0.1, 10, 60 * hours, 60_000),
        settings=[overlay(*both) for both in zip((SMALL, quick, CUT, {}), more)],
        of_arms=(cut_margins,) * 3,
        of_values=of_values,
        seeds=(1, 1, 2),
        cells=(1, 1, 2, 6),
        search_at=(None, search_at, search_at),
        only=only,
        note=(
            "synthetic images of 3 × 32 × 32, WRN-10 with 2 channels, one step, one other class",
            "synthetic images, which say nothing of the claims: no CIFAR-10 is embedded; two cores",
            "cut in this order: margins against one other class instead of 9, WRN-16-4, 3,000 steps instead of "
            "50,000, 2 search cells instead of 6, at one condition, 2 seeds; one H200",
            "nothing is cut; GPU-weeks",
        ),
    )


DEVIATIONS = (
    "The paper names crops, contrast and hue without numbers: here shifts of up to 4 pixels, contrast of 1 ± 0.2 and "
    "hue of ± 5 % of a turn, drawn anew in every step.",
    "That the paper's γ are for softmax scores is our inference; the three convolutions are the 7th, 13th and 19th "
    "of the 25 on the way through the network.",
    "The paper does not give the hinge's weight of cross-entropy: here 0.01.",
)


def study(*, keep: bool = False, deviations: tuple[str, ...] = (), **more: Any) -> Study:
    """A study of the five models."""
    settings = {**SETTINGS, "keep": True} if keep else SETTINGS
    return Study(arms=FIVE, settings=settings, deviations=(*deviations, *DEVIATIONS), **more)
