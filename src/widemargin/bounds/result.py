"""Results: bounds with their terms and assumptions, and values per sample that are proved or estimated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Annotated, ClassVar, get_origin, get_type_hints

from widemargin.types import PerExample


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """An assumption of a theorem and what the data say about it.

    `holds` is None if data can't tell (whether a reference network was chosen before the data was seen, say).
    """

    text: str
    holds: bool | None
    found: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "DOES NOT HOLD", None: "can't be checked"}[self.holds]
        return f"{self.text}: {verdict} ({self.found})"


@dataclass(frozen=True, kw_only=True)
class Bound(ABC):
    """An upper bound of an error between 0 and 1; fields annotated with a name are its `terms`."""

    value: float
    assumptions: tuple[Assumption, ...]

    @property
    @abstractmethod
    def source(self) -> str:
        """The theorem, and the parts of it that the value leaves out."""

    @property
    def terms(self) -> dict[str, float | int]:
        """Every term of the value, by its name in the paper."""
        return dict(_terms(self))

    @property
    def vacuous(self) -> bool:
        """Whether the value is at least 1, which no error exceeds."""
        return not self.value < 1

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions that the data contradict: with one of them the value is not a bound."""
        return tuple(a for a in self.assumptions if a.holds is False)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.value:.4g}{' (vacuous)' if self.vacuous else ''}"]
        lines += [f"  {name} = {value:.4g}" for name, value in self.terms.items()]
        return "\n".join([*lines, *(f"  {assumption}" for assumption in self.assumptions)])


def _terms(part: object, suffix: str = "") -> Iterator[tuple[str, float | int]]:
    """Names and values of the annotated fields of a dataclass, of the dataclasses in it, and of its layers."""
    for field, hint in get_type_hints(type(part), include_extras=True).items():
        value = getattr(part, field)
        if get_origin(hint) is Annotated:
            yield f"{hint.__metadata__[0]}{suffix}", value
        elif field == "layers":
            for layer in value:
                yield from _terms(layer, f" at {layer.name}")
        elif is_dataclass(value):
            yield from _terms(value)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Values:
    kind: ClassVar[str]
    what: str
    values: PerExample

    @property
    def name(self) -> str:
        """The printed name."""
        return f"{self.kind}: {self.what}"

    def __repr__(self) -> str:
        low, middle = float(self.values.min()), float(self.values.nanmedian())
        return f"{self.name}: min {low:.4g}, median {middle:.4g}, {len(self.values)} samples"


class Certificate(_Values):
    """Proved lower bounds of the true values, up to the rounding of the network's scores."""

    kind = "certificate"


class MarginEstimate(_Values):
    """Estimates without proof, which may be above the true values. NaN where there is none."""

    kind = "estimate (no certificate)"


def power(base: float, exponent: float | int) -> float:
    """base^exponent, ∞ on overflow, as for bounds of deep networks."""
    try:
        return base**exponent
    except OverflowError:
        return math.inf
