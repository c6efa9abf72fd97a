"""Checks of the arguments that regularizers share, and the gradients that those of Jacobians take."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator

from torch import Tensor

from widemargin.places import At


def check_weight(weight: float) -> None:
    """Raise unless `weight` is a finite number ≥ 0."""
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real):
        raise TypeError(f"weight is {weight!r}, expected a finite number >= 0")
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight is {weight}, expected a finite number >= 0")


def check_place(at: str) -> None:
    """Raise unless `at` is one name."""
    if not isinstance(at, str):
        raise TypeError(f"at is {at!r}, expected the name of one place such as 'input'")


def check_statistics(statistics: str) -> None:
    """Raise unless `statistics` is one of the two choices of `places.watch`."""
    if statistics not in ("coupled", "frozen"):
        raise ValueError(f"statistics is {statistics!r}, expected 'coupled' or 'frozen'")


def gradients_at(at: At, outputs: Tensor) -> Iterator[Tensor]:
    """The gradients of the columns of `outputs` at the one place of `at`, `[some, batch, ...]`, with their graph."""
    batch = len(outputs)
    for part in at.columns(outputs, second_order=True):
        ((name, gradients),) = part.items()
        if gradients.shape[1:2] != (batch,):
            raise ValueError(
                f"at has {name!r} with {gradients[0].shape[0] if gradients.ndim > 1 else 'no'} rows, but scores have "
                f"{batch} samples: a place must have the batch as its first dimension"
            )
        yield gradients
