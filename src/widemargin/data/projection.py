"""Maps of single inputs: to the sphere of radius √d, and to [0, 1]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from widemargin.data.samples import Samples

TensorOrSamples = TypeVar("TensorOrSamples", Tensor, Samples)


def to_sphere(data: TensorOrSamples) -> TensorOrSamples:
    """x·√d/‖x‖₂ for each sample x of d numbers: the sphere of radius √d (farhang, Recipe 1, step 1).

    Takes and gives samples, or a tensor [n, ...]. A sample of zeros has no direction and is an error.
    """
    if isinstance(data, Samples):
        return replace(data, x=_to_sphere(data.x))
    return _to_sphere(data)


def to_unit_range(data: TensorOrSamples, bounds: tuple[float | int, float | int] | None = None) -> TensorOrSamples:
    """(x − low)/(high − low): from the range `bounds` = (low, high) to [0, 1], not clipped.

    Without `bounds`, low and high are the smallest and the largest number of this data. A test set takes the bounds
    of its training set: `to_unit_range(test, bounds=(0, 255))`. Integers become float32.
    """
    if isinstance(data, Samples):
        return replace(data, x=_to_unit_range(data.x, bounds))
    return _to_unit_range(data, bounds)


def _to_sphere(x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    if not x.is_floating_point():
        raise TypeError(f"x has dtype {x.dtype}, expected a floating-point tensor to project to the sphere")
    rows = x.reshape(len(x), -1)
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    bad = (~(torch.isfinite(norms) & (norms > 0))).nonzero()
    if len(bad):
        at = int(bad[0])
        raise ValueError(f"x has norm {norms[at].item():g} at index {at}, expected a finite norm > 0 to project")
    scaled = rows * (math.sqrt(rows.shape[1]) / norms).unsqueeze(1)
    return scaled.to(x.dtype).reshape(x.shape)


def _to_unit_range(
    x: Shaped[Tensor, "n ..."], bounds: tuple[float | int, float | int] | None
) -> Float[Tensor, "n ..."]:
    if not x.is_floating_point():
        x = x.to(torch.float32)
    low, high = bounds if bounds is not None else (x.min().item(), x.max().item())
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"bounds is ({low}, {high}), expected two finite numbers, the first below the second")
    return (x - low) / (high - low)
