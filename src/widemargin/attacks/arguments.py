"""Checks of the arguments that attacks share, and the set that attacked inputs stay in."""

from __future__ import annotations

import math
import numbers
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor

Inputs: TypeAlias = Float[Tensor, "batch ..."]
"""What a network takes, a row a sample."""

Bounds: TypeAlias = tuple[float | int, float | int] | None
"""The range of the data, such as (0.0, 1.0), or None where it has none."""


def check_size(name: str, value: float | int) -> None:
    """Raise unless `value` is a finite number ≥ 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, expected a finite number >= 0")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value}, expected a finite number >= 0")


def check_steps(step: float | int | None, steps: int | None) -> None:
    """Raise unless `step` is a finite number > 0 and `steps` an integer ≥ 1, or None."""
    if step is not None:
        check_size("step", step)
        if step == 0:
            raise ValueError("step is 0, expected a finite number > 0")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ValueError(f"steps is {steps!r}, expected an integer >= 1")


def check_bounds(bounds: Bounds) -> None:
    """Raise unless `bounds` is None or a pair (low, high) with low < high."""
    if bounds is None:
        return
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not all(isinstance(b, numbers.Real) for b in bounds):
        raise TypeError(f"bounds is {bounds!r}, expected a pair (low, high) of numbers, or None")
    if not bounds[0] < bounds[1]:
        raise ValueError(f"bounds is {bounds!r}, expected low < high")


def check_inputs(x: Tensor, bounds: Bounds) -> None:
    """Raise unless `x` is of floats that lie in `bounds`."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}, expected a tensor")
    if not x.is_floating_point():
        raise TypeError(f"x has dtype {x.dtype}, expected floating point: integers can't be moved by a small step")
    check_bounds(bounds)
    if bounds is None or not len(x):
        return
    outside = ~((x >= bounds[0]) & (x <= bounds[1])).flatten(1 if x.ndim > 1 else 0)
    rows = outside.any(dim=1) if outside.ndim > 1 else outside
    if bool(rows.any()):
        i = int(rows.nonzero()[0])
        value = x[i].flatten()[outside[i].flatten()][0]
        raise ValueError(f"x has {value.item():g} at index {i}, expected values in bounds={bounds} (None: no bounds)")


def into_box(moved: Tensor, x: Tensor, epsilon: float | int, bounds: Bounds) -> Tensor:
    """Clip_{x,ε}: each value of `moved` into [x_i − ε, x_i + ε], and into the range of the data."""
    return into_bounds(moved.clamp(x - epsilon, x + epsilon), bounds)


def into_bounds(moved: Tensor, bounds: Bounds) -> Tensor:
    """Each value of `moved` into the range of the data."""
    return moved if bounds is None else moved.clamp(*bounds)
