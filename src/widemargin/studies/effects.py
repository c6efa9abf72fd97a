"""How the number of a claim is computed from rows: an effect gives its mean over seeds, with its standard error.

Differences are taken seed by seed, since arms of one seed share their data, their flipped labels and their first
weights; the standard error is sd/√seeds of those differences. One seed has none.
"""

from __future__ import annotations

import abc
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from widemargin.studies.rows import AXES, Row, select

Where = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A number over seeds; `parts` are the single gaps of an order, named."""

    mean: float
    sd: float | None
    seeds: int
    parts: tuple[tuple[str, Measured], ...] = ()

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for one seed."""
        return None if self.sd is None else self.sd / math.sqrt(self.seeds)

    @classmethod
    def of(cls, values: Sequence[float], factor: float | int = 1.0) -> Measured:
        """Mean and standard deviation of one value a seed."""
        scaled = [float(value) * factor for value in values]
        sd = statistics.stdev(scaled) if len(scaled) > 1 else None
        return cls(mean=statistics.fmean(scaled), sd=sd, seeds=len(scaled))


class Effect(abc.ABC):
    """A number, or an order, read off rows."""

    is_order: bool = False
    null: float | None = None
    """What the number would be if there were nothing to see: the direction of an effect is its side of this."""

    @property
    @abc.abstractmethod
    def arms(self) -> tuple[str, ...]:
        """The arms it speaks of."""

    @abc.abstractmethod
    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> Measured | None:
        """The number, times `factor`; None where rows are missing."""


@dataclass(frozen=True, kw_only=True)
class Value(Effect):
    """A metric of an arm; the mean where `where` leaves several conditions."""

    metric: str
    arm: str
    where: Where = field(default_factory=dict)

    @property
    def arms(self) -> tuple[str, ...]:
        """The one arm."""
        return (self.arm,)

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> Measured | None:
        """Mean over seeds."""
        found = _by_seed(rows, self.metric, self.arm, self.where)
        return Measured.of([statistics.fmean(cells.values()) for cells in found.values()], factor) if found else None


@dataclass(frozen=True, kw_only=True)
class Gap(Effect):
    """`arm` minus `against`, seed by seed; the mean over conditions where `where` leaves several.

    `against_where` is for a comparison across conditions: those of `against`, by default the same.
    """

    metric: str
    arm: str
    against: str
    where: Where = field(default_factory=dict)
    against_where: Where | None = None
    null = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """Both."""
        return self.arm, self.against

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> Measured | None:
        """Mean over seeds of the differences."""
        pairs = _pairs(rows, self)
        return Measured.of([a - b for a, b in pairs], factor) if pairs else None


@dataclass(frozen=True, kw_only=True)
class Ratio(Effect):
    """`arm` over `against`, seed by seed, of the means over conditions."""

    metric: str
    arm: str
    against: str
    where: Where = field(default_factory=dict)
    against_where: Where | None = None
    null = 1.0

    @property
    def arms(self) -> tuple[str, ...]:
        """Both."""
        return self.arm, self.against

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> Measured | None:  # noqa: ARG002 (a ratio has no unit)
        """Mean over seeds of the ratios."""
        pairs = _pairs(rows, self)
        return Measured.of([a / b for a, b in pairs]) if pairs and all(b for _, b in pairs) else None


@dataclass(frozen=True, kw_only=True)
class Order(Effect):
    """Each of `ordered` is above the next one, under every condition that `where` leaves.

    `share`: the metric is a share, and its gaps are in points.
    """

    metric: str
    ordered: tuple[str, ...]
    where: Where = field(default_factory=dict)
    share: bool = True
    is_order = True
    null = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """All of them."""
        return self.ordered

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> Measured | None:
        """The mean gap over seeds; `parts` has the gap of every neighbouring pair under every condition."""
        parts, overall = [], []
        for upper, lower in zip(self.ordered, self.ordered[1:]):
            above, below = (_by_seed(rows, self.metric, arm, self.where) for arm in (upper, lower))
            seeds = above.keys() & below.keys()
            shared = [cell for seed in sorted(seeds) for cell in above[seed] if cell in below[seed]]
            cells = list(dict.fromkeys(shared))
            if not cells:
                return None
            for cell in cells:
                gaps = [above[s][cell] - below[s][cell] for s in sorted(seeds) if cell in above[s] and cell in below[s]]
                at = ", ".join(f"{key} {value}" for key, value in cell)
                parts.append((f"{upper} − {lower}{at and f' at {at}'}", Measured.of(gaps, factor)))
            overall.append(
                [
                    statistics.fmean(above[s][cell] - below[s][cell] for cell in above[s] if cell in below[s])
                    for s in sorted(seeds)
                ]
            )
        means = [statistics.fmean(values) for values in zip(*overall)]
        total = Measured.of(means, factor)
        return Measured(mean=total.mean, sd=total.sd, seeds=total.seeds, parts=tuple(parts))


@dataclass(frozen=True, kw_only=True)
class Custom(Effect):
    """Anything else: `function(rows)` gives one number a seed, before the claim's factor; an empty list: not run.

    `baseline` is what the number would be without an effect, None where that makes no sense.
    """

    function: Callable[[Sequence[Row]], Sequence[float]]
    baseline: float | int | None = None

    @property
    def null(self) -> float | None:  # type: ignore[override]
        """The baseline."""
        return None if self.baseline is None else float(self.baseline)

    @property
    def arms(self) -> tuple[str, ...]:
        """Unknown."""
        return ()

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> Measured | None:
        """Mean over seeds of what the function gives."""
        values = list(self.function(rows))
        return Measured.of(values, factor) if values else None


@dataclass(frozen=True, kw_only=True)
class Positive(Effect):
    """A number that the paper shows as a picture only: all that is asked of it is to stand out above 0, as an order.

    `function(rows)` gives one number a seed, before the claim's factor; an empty list: not run.
    """

    function: Callable[[Sequence[Row]], Sequence[float]]
    name: str
    is_order = True
    null = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """Unknown."""
        return ()

    def of(self, rows: Sequence[Row], factor: float = 1.0) -> Measured | None:
        """Mean over seeds of what the function gives."""
        values = list(self.function(rows))
        if not values:
            return None
        total = Measured.of(values, factor)
        return Measured(mean=total.mean, sd=total.sd, seeds=total.seeds, parts=((self.name, total),))


def _by_seed(
    rows: Sequence[Row], metric: str, arm: str, where: Where
) -> dict[int, dict[tuple[tuple[str, Any], ...], float]]:
    """seed → condition → value."""
    found: dict[int, dict[tuple[tuple[str, Any], ...], float]] = {}
    for row in select(rows, metric, arm, where):
        found.setdefault(row["seed"], {})[_axes(row, where)] = float(row[metric])
    return found


def _axes(row: Row, where: Where) -> tuple[tuple[str, Any], ...]:
    """The condition of a row, as far as `where` does not fix it already."""
    return tuple((n, row[n]) for n in row[AXES] if n not in where or isinstance(where[n], (tuple, list)))


def _pairs(rows: Sequence[Row], effect: Gap | Ratio) -> list[tuple[float, float]]:
    first = _by_seed(rows, effect.metric, effect.arm, effect.where)
    other = effect.where if effect.against_where is None else effect.against_where
    second = _by_seed(rows, effect.metric, effect.against, other)
    pairs = []
    for seed in sorted(first.keys() & second.keys()):
        one, two = first[seed], second[seed]
        shared = one.keys() & two.keys() if effect.against_where is None else None
        if shared is None:
            pairs.append((statistics.fmean(one.values()), statistics.fmean(two.values())))
        elif shared:
            pairs.append((statistics.fmean(one[c] for c in shared), statistics.fmean(two[c] for c in shared)))
    return pairs
