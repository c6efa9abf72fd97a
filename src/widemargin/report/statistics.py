"""Statistics and density of the margins of an arm, without torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from widemargin.report.schema import ArmResult, Margins

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
POINTS = 121
"""Points of a density's grid: a point every three pixels on a phone."""

_Values = Float[np.ndarray, " n"]


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of margins; NaN where undefined. `std` is divided by n."""

    count: int
    invalid: int
    mean: float
    std: float
    share_negative: float
    quantiles: dict[float, float]

    @property
    def ratio(self) -> float:
        """Mean / standard deviation (odn, §4.5): the larger, the tighter the distribution."""
        return self.mean / self.std if self.std > 0 else math.nan


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and standard deviation (divided by n − 1) over seeds."""

    mean: float
    std: float

    def is_beyond(self, other: Spread) -> bool:
        """Whether the means differ by more than twice the standard deviation of a difference of two seeds."""
        return abs(self.mean - other.mean) > 2 * math.hypot(self.std, other.std)


def spread(values: Iterable[float | int | None]) -> Spread:
    """Mean and standard deviation of `values`; NaN where one is missing."""
    known = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    return Spread(mean=float(known.mean()), std=float(known.std(ddof=1)))


def has_seeds(arms: list[ArmResult]) -> bool:
    """Whether every arm has networks of several seeds."""
    return all(len(arm.get("seeds", [])) > 1 for arm in arms)


def statistics(margins: Margins) -> Statistics:
    """The statistics of `margins`; None, a sample without a margin, is excluded and counted."""
    if isinstance(margins, dict):
        mean, std, negative = float(margins["mean"]), float(margins["std"]), float(margins["share_negative"])
        return Statistics(count=margins["count"], invalid=0, mean=mean, std=std, share_negative=negative, quantiles={})
    values = _values(margins)
    counts = {"count": len(margins), "invalid": len(margins) - len(values)}
    if not len(values):
        return Statistics(**counts, mean=math.nan, std=math.nan, share_negative=math.nan, quantiles={})
    quantiles = {q: float(np.quantile(values, q)) for q in QUANTILES}
    negative = float((values < 0).mean())
    mean, std = float(values.mean()), float(values.std())
    return Statistics(**counts, mean=mean, std=std, share_negative=negative, quantiles=quantiles)


def density(margins: Margins) -> list[tuple[float, float]]:
    """(margin, density) along a grid; empty where fewer than two margins differ.

    A Gaussian kernel of bandwidth h = 0.9·min(σ, IQR/1.34)·n^(−1/5) (Silverman 1986, (3.31)), on margins that are first
    counted in cells of h/8, which makes it as fast for a million samples as for a thousand. The grid leaves out the
    outermost 0.2 % on either side, so that outliers do not compress the rest; h is at least the spacing of the grid.
    """
    if isinstance(margins, dict):
        return [(float(x), float(y)) for x, y in zip(margins["grid"], margins["density"], strict=True)]
    values = _values(margins)
    if len(values) < 2 or values.min() == values.max():
        return []
    low, high = (float(np.quantile(values, q)) for q in (0.002, 0.998))
    h = max(_bandwidth(values), (high - low) / POINTS)
    grid = np.linspace(low - 3 * h, high + 3 * h, POINTS)
    near = values[(values > grid[0] - 4 * h) & (values < grid[-1] + 4 * h)]
    cells, counts = np.unique(np.floor(near / (h / 8)), return_counts=True)
    centres = (cells + 0.5) * (h / 8)
    heights = np.exp(-0.5 * ((grid[:, None] - centres) / h) ** 2) @ counts / (len(values) * h * math.sqrt(2 * math.pi))
    return [(float(x), float(y)) for x, y in zip(grid, heights, strict=True)]


def places(arms: list[ArmResult]) -> list[str]:
    """The places at which any arm has margins, in the order in which they are first named."""
    return list(dict.fromkeys(place for arm in arms for place in arm.get("margins", {})))


def _bandwidth(values: _Values) -> float:
    spread = float(values.std())
    quartiles = float(np.subtract(*np.quantile(values, (0.75, 0.25)))) / 1.34
    return 0.9 * (min(spread, quartiles) if quartiles > 0 else spread) * len(values) ** -0.2


def _values(margins: Iterable[float | int | None]) -> _Values:
    return np.array([m for m in margins if m is not None], dtype=np.float64)
