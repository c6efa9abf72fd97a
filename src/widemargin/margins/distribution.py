"""Statistics of a margin distribution: exact, and mergeable across batches and processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.checks import check_dense, check_number
from widemargin.types import Labels, PerExample

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True, eq=False)
class Distribution:
    """The sorted margins of a set of samples, and their statistics.

    Holds all values (8 bytes a sample) instead of moments, so merging is exact in any order, and so are quantiles. NaN
    margins, of samples with a zero gradient, are left out and counted in `invalid`.
    """

    values: Float[Tensor, " valid"]
    invalid: int = 0

    @classmethod
    def of(cls, margins: PerExample) -> Distribution:
        """The distribution of these margins, one per sample."""
        check_dense(margins, "margins", "[batch]")
        if margins.ndim != 1:
            raise ValueError(f"margins has shape {list(margins.shape)}, expected [batch]")
        numbers = margins.detach().to("cpu", torch.float64)
        values = numbers[~numbers.isnan()]
        return cls(values.sort().values, len(numbers) - len(values))

    def merge(self, *others: Distribution) -> Distribution:
        """The distribution of all their samples together."""
        parts = (self, *others)
        values = torch.cat([part.values for part in parts]).sort().values
        return Distribution(values, sum(part.invalid for part in parts))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean margin of the valid samples; NaN where there are none, as everywhere below."""
        return float(self.values.mean()) if len(self) else math.nan

    @property
    def std(self) -> float:
        """Standard deviation, of the samples themselves (divided by n)."""
        return float(self.values.std(correction=0)) if len(self) else math.nan

    @property
    def ratio(self) -> float:
        """Mean / standard deviation (odn §4.5): larger for a tighter distribution."""
        return self.mean / self.std if self.std > 0 else math.nan

    @property
    def minimum(self) -> float:
        """The smallest margin."""
        return float(self.values[0]) if len(self) else math.nan

    @property
    def share_negative(self) -> float:
        """Share of the valid samples whose margin is negative: misclassified."""
        return float((self.values < 0).double().mean()) if len(self) else math.nan

    def quantile(self, q: float) -> float:
        """The margin below which a share `q` of the samples lies (linear between samples)."""
        check_number("q", q, least=0.0, most=1.0)
        if not len(self):
            return math.nan
        position = q * (len(self) - 1)  # torch.quantile refuses more than 16 million values
        low = math.floor(position)
        if position == low:  # also where a neighbour is infinite
            return float(self.values[low])
        return float(torch.lerp(self.values[low], self.values[low + 1], position - low))

    def density(self, grid: Sequence[float] | Tensor, *, bandwidth: float | None = None) -> Float[Tensor, " grid"]:
        """Gaussian kernel density at the points of `grid`, by default with Scott's bandwidth σ·n^(−1/5)."""
        points = torch.as_tensor(grid, dtype=torch.float64)
        if len(self) < 2:
            raise ValueError(f"a density needs at least 2 valid margins, got {len(self)}")
        width = float(self.values.std()) * len(self) ** -0.2 if bandwidth is None else bandwidth
        if not width > 0:
            raise ValueError(f"bandwidth is {width}, expected a positive number (are all margins equal?)")
        total = torch.zeros_like(points)
        for chunk in self.values.split(4096):  # keeps the table of grid × samples small
            total += torch.exp(-0.5 * ((points[:, None] - chunk) / width) ** 2).sum(dim=1)
        return total / (len(self) * width * math.sqrt(2 * math.pi))

    def summary(self) -> dict[str, int | float]:
        """The statistics by name, for tables and JSON."""
        return {
            "count": len(self) + self.invalid,
            "invalid": self.invalid,
            "mean": self.mean,
            "std": self.std,
            "mean/std": self.ratio,
            "share negative": self.share_negative,
            "minimum": self.minimum,
            **{f"quantile {q:g}": self.quantile(q) for q in QUANTILES},
        }


def by_class(margins: PerExample, y: Labels) -> dict[int, Distribution]:
    """One distribution per class that occurs in `y`."""
    check_dense(margins, "margins", "[batch]")
    check_dense(y, "y", "[batch]")
    if margins.shape != y.shape:
        raise ValueError(f"y has shape {list(y.shape)}, but margins has shape {list(margins.shape)}")
    classes: Iterable[float] = y.unique().tolist()
    return {int(c): Distribution.of(margins[y == c]) for c in classes}
