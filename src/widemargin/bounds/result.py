"""What every bound hands back beside its value: its terms, its assumptions, and whether it says anything."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """An assumption of a theorem and what the data say of it.

    `holds` is None where no data can tell (a reference network chosen before the data was seen, say).
    """

    text: str
    holds: bool | None
    found: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "DOES NOT HOLD", None: "can't be checked"}[self.holds]
        return f"{self.text}: {verdict} ({self.found})"


class Bound(ABC):
    """A number that an error, between 0 and 1, is claimed not to exceed."""

    value: float
    assumptions: tuple[Assumption, ...]

    @property
    @abstractmethod
    def source(self) -> str:
        """The theorem, and what of it is left out of the value."""

    @property
    @abstractmethod
    def terms(self) -> dict[str, float | int]:
        """Every term of the value, by the name a reader of the paper knows it by."""

    @property
    def vacuous(self) -> bool:
        """Whether the value is at least 1, which every error is below anyway."""
        return not self.value < 1

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions that the data contradict: with one of them the value is a number, and no bound."""
        return tuple(a for a in self.assumptions if a.holds is False)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.value:.4g}{' (vacuous)' if self.vacuous else ''}"]
        lines += [f"  {name} = {value:.4g}" for name, value in self.terms.items()]
        return "\n".join([*lines, *(f"  {assumption}" for assumption in self.assumptions)])


def power(base: float, exponent: float | int) -> float:
    """base^exponent, ∞ where that is more than a float holds: bounds of deep networks get there."""
    try:
        return base**exponent
    except OverflowError:
        return math.inf
