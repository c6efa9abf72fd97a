"""The range of the data, in which attacked inputs stay."""

from __future__ import annotations

import numbers
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor

from widemargin.checks import check_floating, is_capturing

Inputs: TypeAlias = Float[Tensor, "batch ..."]
"""Inputs of a network, a row a sample."""

Bounds: TypeAlias = tuple[float | int, float | int] | None
"""The range of the data, such as (0.0, 1.0), or None where it has none."""


def check_bounds(bounds: Bounds) -> None:
    """Raise unless `bounds` is None or a pair (low, high) with low < high."""
    if bounds is None:
        return
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not all(isinstance(b, numbers.Real) for b in bounds):
        raise TypeError(f"bounds is {bounds!r}, expected a pair (low, high) of numbers, or None")
    if not bounds[0] < bounds[1]:  # also if one is NaN
        raise ValueError(f"bounds is {bounds!r}, expected low < high")


def check_inputs(x: Tensor, bounds: Bounds) -> None:
    """Raise unless `x` is floating point and lies in `bounds`; values are not checked in a CUDA graph."""
    check_floating(x, "x", "[batch, ...]")
    check_bounds(bounds)
    if x.ndim < 1 or not len(x):
        raise ValueError(f"x has shape {list(x.shape)}, expected [batch, ...] with at least one sample")
    if bounds is None or is_capturing(x.device):
        return
    outside = ~((x >= bounds[0]) & (x <= bounds[1])).reshape(len(x), -1)
    if bool(outside.any()):
        i = int(outside.any(dim=1).nonzero()[0])
        value = x[i].flatten()[outside[i]][0].item()
        raise ValueError(f"x has {value:g} at index {i}, expected values in bounds={bounds} (None: no bounds)")


def into_bounds(moved: Tensor, bounds: Bounds) -> Tensor:
    """Each value of `moved` into the range of the data."""
    return moved if bounds is None else moved.clamp(*bounds)
