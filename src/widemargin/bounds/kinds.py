"""What is proved of every sample, and what is only estimated: the type says which, and so does the printed name."""

from __future__ import annotations

from dataclasses import dataclass

from widemargin.types import PerExample


@dataclass(frozen=True, kw_only=True, eq=False)
class Certificate:
    """A number per sample that the true one is proved not to be below, up to the rounding of the network's scores."""

    what: str
    values: PerExample

    @property
    def name(self) -> str:
        """How it is printed."""
        return f"certificate: {self.what}"

    def __str__(self) -> str:
        return _line(self.name, self.values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A number per sample that nothing is proved of: it may be above the true one. NaN where there is none."""

    what: str
    values: PerExample

    @property
    def name(self) -> str:
        """How it is printed."""
        return f"estimate (no certificate): {self.what}"

    def __str__(self) -> str:
        return _line(self.name, self.values)


def _line(name: str, values: PerExample) -> str:
    return f"{name}: min {float(values.min()):.4g}, median {float(values.nanmedian()):.4g}, {len(values)} samples"
