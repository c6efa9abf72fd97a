"""Short forms of claims: a text, the arms, and the paper's number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from widemargin.studies.effects import Custom, Gap, Order, Positive, Value, Where
from widemargin.studies.rows import Row
from widemargin.studies.schema import Claim

Number = float | int
ALL: Where = {}
BySeed = Callable[[Sequence[Row]], Sequence[float]]
"""From all rows to one number a seed."""


class Judged(TypedDict, total=False):
    """How a number is compared with the paper's, see `Claim`."""

    relative: bool
    tolerance: Number | None


def value(
    text: str, arm: str, reported: Number, metric: str = "accuracy", where: Where = ALL, **judged: Unpack[Judged]
) -> Claim:
    """The metric of an arm is `reported`."""
    return Claim(text=text, effect=Value(metric=metric, arm=arm, where=where), reported=reported, **judged)


def gap(
    text: str,
    arm: str,
    against: str,
    reported: Number,
    metric: str = "accuracy",
    where: Where = ALL,
    **judged: Unpack[Judged],
) -> Claim:
    """The metric of `arm` minus that of `against` is `reported`."""
    effect = Gap(metric=metric, arm=arm, against=against, where=where)
    return Claim(text=text, effect=effect, reported=reported, **judged)


def order(text: str, *arms: str, metric: str = "accuracy", where: Where = ALL, share: bool = True) -> Claim:
    """The metric of each arm is above that of the next one, see `effects.Order`."""
    return Claim(text=text, effect=Order(metric=metric, ordered=arms, where=where, share=share))


def custom(
    text: str, function: BySeed, reported: Number, baseline: Number | None = None, **judged: Unpack[Judged]
) -> Claim:
    """The mean of `function(rows)` over seeds is `reported`."""
    return Claim(text=text, effect=Custom(function=function, baseline=baseline), reported=reported, **judged)


def positive(text: str, function: BySeed, name: str) -> Claim:
    """`function(rows)` is positive; the paper shows it only in a figure."""
    return Claim(text=text, effect=Positive(function=function, name=name))
