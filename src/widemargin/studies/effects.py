"""Effects: how the number of a claim is computed from rows, as a mean over seeds with its standard error.

Differences are taken seed by seed, since arms of one seed share their data, their flipped labels and their first
weights; the standard error is sd/√seeds of those differences. One seed has none.
"""

from __future__ import annotations

import abc
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from widemargin.studies.rows import AXES, Row, select
from widemargin.studies.settings import Settings

Where: TypeAlias = Settings
"""Axis or key of the rows → a value, or a tuple of allowed ones."""

Cell: TypeAlias = tuple[tuple[str, Any], ...]

Compared: TypeAlias = tuple[tuple[str, Where], ...]
"""The arms that a number compares, each with its conditions; empty where it is of one arm."""


@dataclass(frozen=True, kw_only=True)
class MeasuredEffect:
    """Mean and spread of an effect over seeds; `parts` are the named gaps of an order, each with what it compares."""

    mean: float
    sd: float | None
    seeds: int
    parts: tuple[tuple[str, MeasuredEffect], ...] = ()
    compared: Compared = ()

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for one seed."""
        return None if self.sd is None else self.sd / math.sqrt(self.seeds)

    @classmethod
    def of(cls, values: Sequence[float], factor: float | int = 1.0) -> MeasuredEffect:
        """Mean and standard deviation of one value a seed."""
        scaled = [float(value) * factor for value in values]
        sd = statistics.stdev(scaled) if len(scaled) > 1 else None
        return cls(mean=statistics.fmean(scaled), sd=sd, seeds=len(scaled))


class Effect(abc.ABC):
    """A number, or an order, computed from rows."""

    is_order: bool = False
    null: float | None = None
    """Value under the null hypothesis; the sign of an effect is measured from it."""

    slack: float = 0.0
    """By how much an order may be missed: 0 where it says "above", more where it says "not below"."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that it names."""
        return ()

    @abc.abstractmethod
    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:
        """The number, times `factor`; None where rows are missing."""


@dataclass(frozen=True, kw_only=True)
class Value(Effect):
    """A metric of an arm; the mean where `where` leaves several conditions."""

    metric: str
    arm: str
    where: Where = field(default_factory=dict)

    @property
    def arms(self) -> tuple[str, ...]:
        """The arm."""
        return (self.arm,)

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:
        """Mean over seeds."""
        by_seed = _by_seed(rows, self.metric, self.arm, self.where)
        return _mean([statistics.fmean(cells.values()) for cells in by_seed.values()], factor)


@dataclass(frozen=True, kw_only=True)
class _Comparison(Effect):
    """Two arms, seed by seed; the mean over conditions where `where` leaves several.

    `against_where` is for a comparison across conditions: those of `against`, by default the same.
    """

    metric: str
    arm: str
    against: str
    where: Where = field(default_factory=dict)
    against_where: Where | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """Both arms."""
        return self.arm, self.against

    @property
    def compared(self) -> Compared:
        """Both arms with their conditions."""
        other = self.where if self.against_where is None else self.against_where
        return (self.arm, self.where), (self.against, other)

    def pairs(self, rows: Sequence[Row]) -> list[tuple[float, float]]:
        """The values of both arms, for every seed that both have."""
        first, second = (_by_seed(rows, self.metric, arm, where) for arm, where in self.compared)
        pairs = []
        for seed in sorted(first.keys() & second.keys()):
            one, two = first[seed], second[seed]
            if self.against_where is None:
                shared = one.keys() & two.keys()
                one, two = ({cell: values[cell] for cell in shared} for values in (one, two))
            if one:
                pairs.append((statistics.fmean(one.values()), statistics.fmean(two.values())))
        return pairs


class Gap(_Comparison):
    """`arm` minus `against`."""

    null = 0.0

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:
        """Mean over seeds of the differences."""
        return _mean([a - b for a, b in self.pairs(rows)], factor, self.compared)


class Ratio(_Comparison):
    """`arm` over `against`."""

    null = 1.0

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:  # noqa: ARG002 (no unit)
        """Mean over seeds of the ratios."""
        pairs = self.pairs(rows)
        return _mean([a / b for a, b in pairs], compared=self.compared) if all(b for _, b in pairs) else None


@dataclass(frozen=True, kw_only=True)
class Order(Effect):
    """Each of `ordered` is above the next one, under every condition that `where` leaves.

    `share`: the metric is a share, and its gaps are in points. `slack`: each is above the next one less this much, for
    "at least as good"; in the units of the gaps.
    """

    metric: str
    ordered: tuple[str, ...]
    where: Where = field(default_factory=dict)
    share: bool = True
    slack: float = 0.0
    is_order = True
    null = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms of the order."""
        return self.ordered

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:
        """The mean gap over seeds; `parts` has the gap of every neighbouring pair under every condition."""
        parts: list[tuple[str, MeasuredEffect]] = []
        by_seed: dict[int, dict[tuple[str, str, Cell], float]] = {}
        for upper, lower in zip(self.ordered, self.ordered[1:]):
            above, below = (_by_seed(rows, self.metric, arm, self.where) for arm in (upper, lower))
            gaps = {seed: _differences(above[seed], below[seed]) for seed in sorted(above.keys() & below.keys())}
            cells = list(dict.fromkeys(cell for of_seed in gaps.values() for cell in of_seed))
            if not cells:
                return None
            for cell in cells:
                at = ", ".join(f"{key} {value}" for key, value in cell)
                values = [of_seed[cell] for of_seed in gaps.values() if cell in of_seed]
                compared = tuple((arm, {**self.where, **dict(cell)}) for arm in (upper, lower))
                gap = replace(MeasuredEffect.of(values, factor), compared=compared)
                parts.append((f"{upper} − {lower}{at and f' at {at}'}", gap))
            for seed, of_seed in gaps.items():
                by_seed.setdefault(seed, {}).update({(upper, lower, cell): gap for cell, gap in of_seed.items()})
        return replace(MeasuredEffect.of(_means(by_seed, len(parts)), factor), parts=tuple(parts))


@dataclass(frozen=True, kw_only=True)
class Custom(Effect):
    """Any other number: `function(rows)` gives one a seed, before the claim's factor; an empty list: not run.

    `baseline` is the number without an effect, None where there is none.
    """

    function: Callable[[Sequence[Row]], Sequence[float]]
    baseline: float | int | None = None

    @property
    def null(self) -> float | None:  # type: ignore[override]
        """The baseline."""
        return None if self.baseline is None else float(self.baseline)

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:
        """Mean over seeds of the function's values."""
        return _mean(self.function(rows), factor)


@dataclass(frozen=True, kw_only=True)
class Positive(Effect):
    """A number that the paper shows only in a figure: like an order, it must be significantly above 0.

    `function(rows)` gives one number a seed, before the claim's factor; an empty list: not run. `between` are the arms
    that it compares, whose dead seeds count; none: those of all.
    """

    function: Callable[[Sequence[Row]], Sequence[float]]
    name: str
    between: tuple[str, ...] = ()
    is_order = True
    null = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that the function compares."""
        return self.between

    def of(self, rows: Sequence[Row], factor: float | int = 1.0) -> MeasuredEffect | None:
        """Mean over seeds of the function's values."""
        total = _mean(self.function(rows), factor, tuple((arm, {}) for arm in self.between))
        return None if total is None else replace(total, parts=((self.name, total),))


def _mean(values: Sequence[float], factor: float | int = 1.0, compared: Compared = ()) -> MeasuredEffect | None:
    return replace(MeasuredEffect.of(values, factor), compared=compared) if values else None


def _by_seed(rows: Sequence[Row], metric: str, arm: str, where: Where) -> dict[int, dict[Cell, float]]:
    """seed → condition → value."""
    seeds: dict[int, dict[Cell, float]] = {}
    for row in select(rows, metric, arm, where):
        seeds.setdefault(row["seed"], {})[_axes(row, where)] = float(row[metric])
    return seeds


def _means(by_seed: Mapping[int, Mapping[Any, float]], count: int) -> list[float]:
    """Mean gap per seed, over the seeds that have all gaps; over all seeds if fewer than two have."""
    whole = [statistics.fmean(gaps.values()) for gaps in by_seed.values() if len(gaps) == count]
    return whole if len(whole) > 1 else [statistics.fmean(gaps.values()) for gaps in by_seed.values() if gaps]


def _differences(above: dict[Cell, float], below: dict[Cell, float]) -> dict[Cell, float]:
    return {cell: value - below[cell] for cell, value in above.items() if cell in below}


def _axes(row: Row, where: Where) -> Cell:
    """The condition of a row, as far as `where` does not fix it already."""
    return tuple((n, row[n]) for n in row[AXES] if n not in where or isinstance(where[n], (tuple, list)))
