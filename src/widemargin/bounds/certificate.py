"""Values per sample that are proved (`Certificate`) or estimated (`MarginEstimate`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from widemargin.types import PerExample


@dataclass(frozen=True, kw_only=True, eq=False)
class _Values:
    kind: ClassVar[str]
    what: str
    values: PerExample

    @property
    def name(self) -> str:
        """The printed name."""
        return f"{self.kind}: {self.what}"

    def __str__(self) -> str:
        low, middle = float(self.values.min()), float(self.values.nanmedian())
        return f"{self.name}: min {low:.4g}, median {middle:.4g}, {len(self.values)} samples"


class Certificate(_Values):
    """Proved lower bounds of the true values, up to the rounding of the network's scores."""

    kind = "certificate"


class MarginEstimate(_Values):
    """Estimates without proof, which may be above the true values. NaN where there is none."""

    kind = "estimate (no certificate)"
