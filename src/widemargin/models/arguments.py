"""The checks of the numbers that networks are built from, each a sentence with the name, the value and the range.

Values are annotated as `object`: what they are is what is found out here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Raise unless `value` is an integer ≥ `least` (a bool is not one)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, expected an integer of at least {least}")
    if value < least:
        raise ValueError(f"{name} is {value}, expected an integer of at least {least}")


def check_counts(name: str, values: object, *, length: int | None = None) -> None:
    """Raise unless `values` are positive integers, `length` of them where a length is given."""
    if not isinstance(values, tuple | list):
        raise TypeError(f"{name} is {values!r}, expected a tuple of positive integers")
    if length is not None and len(values) != length:
        raise ValueError(f"{name} has {len(values)} entries, expected {length}")
    for index, value in enumerate(values):
        check_count(f"{name}[{index}]", value)


def check_rate(name: str, value: object) -> None:
    """Raise unless `value` is a probability in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number in [0, 1)")
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}, expected a number in [0, 1)")


def check_scale(name: str, value: object) -> None:
    """Raise unless `value` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number above 0")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}, expected a finite number above 0")


def check_flag(name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected True or False")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
