"""Claims: results of a paper, and short forms to declare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from widemargin.studies.effects import Custom, Effect, Gap, Order, Positive, Value, Where
from widemargin.studies.rows import Row

Kind = Literal["points", "relative", "order"]
Side = Literal["both", "at least", "at most"]
Number = float | int
ALL: Where = {}
BySeed = Callable[[Sequence[Row]], Sequence[float]]
"""From all rows to one number a seed."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One result of a paper, and how it is read off our rows.

    Args:
        text: the claim in words.
        effect: how to compute it: `Value`, `Gap`, `Ratio`, `Order` or `Custom` (see `effects`).
        reported: the paper's number, None for an order.
        relative: the number is not a fraction. By default metrics are fractions, and are compared in points (percent).
        tolerance: by default 1 point (for an accuracy at most half of the error rate, and at least 0.1), or 10 % of
            the reported number; give the paper's ± where it has one.
        side: "at least" and "at most" are for a number that only bounds ours.
        one_draw: the paper's number is of one run, as far as it says: it has a spread of its own. Give False where it
            is a mean over runs, a range or a theorem.
        quote: the sentence of the paper that the claim rests on.
        ours: a comparison of ours, which the paper does not make: shown, but no part of the study's verdict.
        goal: the number is a goal of ours, of a study without a paper.
    """

    text: str
    effect: Effect
    reported: float | int | None = None
    relative: bool = False
    tolerance: float | int | None = None
    side: Side = "both"
    one_draw: bool = True
    quote: str = ""
    ours: bool = False
    goal: bool = False

    def __post_init__(self) -> None:
        if (self.reported is None) != self.effect.is_order:
            raise ValueError(f"reported is {self.reported!r}, but the effect is {self.effect!r} ({self.text!r})")

    @property
    def kind(self) -> Kind:
        """An order, a relative number, or a number of points."""
        return "order" if self.effect.is_order else "relative" if self.relative else "points"

    @property
    def factor(self) -> float:
        """What metrics are multiplied by."""
        bare = isinstance(self.effect, Order) and not self.effect.share
        return 1.0 if self.relative or bare else 100.0

    @property
    def allowed(self) -> float | int | None:
        """The tolerance, where there is a number."""
        if self.tolerance is not None or self.reported is None:
            return self.tolerance
        if self.kind == "relative":
            return 0.1 * abs(self.reported)
        share = self.effect.null is None and 50 < self.reported <= 100
        return min(1.0, max(0.1, (100 - self.reported) / 2)) if share else 1.0


class Judged(TypedDict, total=False):
    """How a number is compared with the paper's, see `Claim`."""

    relative: bool
    tolerance: Number | None
    side: Side
    one_draw: bool
    quote: str
    ours: bool
    goal: bool


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
    against_where: Where | None = None,
    **judged: Unpack[Judged],
) -> Claim:
    """The metric of `arm` minus that of `against` is `reported`."""
    effect = Gap(metric=metric, arm=arm, against=against, where=where, against_where=against_where)
    return Claim(text=text, effect=effect, reported=reported, **judged)


def order(
    text: str,
    *arms: str,
    metric: str = "accuracy",
    where: Where = ALL,
    share: bool = True,
    slack: Number = 0.0,
    quote: str = "",
) -> Claim:
    """The metric of each arm is above that of the next one, see `effects.Order`."""
    effect = Order(metric=metric, ordered=arms, where=where, share=share, slack=float(slack))
    return Claim(text=text, effect=effect, quote=quote)


def custom(
    text: str, function: BySeed, reported: Number, baseline: Number | None = None, **judged: Unpack[Judged]
) -> Claim:
    """The mean of `function(rows)` over seeds is `reported`."""
    return Claim(text=text, effect=Custom(function=function, baseline=baseline), reported=reported, **judged)


def positive(text: str, function: BySeed, name: str, quote: str = "") -> Claim:
    """`function(rows)` is positive; the paper shows it only in a figure."""
    return Claim(text=text, effect=Positive(function=function, name=name), quote=quote)
