"""Projections of weights: plain functions of a tensor, which leave what already fulfils the constraint bit for bit.

Each is idempotent: `f(f(w))` is `f(w)`, so that the weights of a stored training are not changed by building its
optimizer again. Sums are taken in float64. `axis` and `groups` say where a row is: see `optim.rows`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin import norms
from widemargin.optim.rows import as_rows, from_rows


def to_centred_unit_rows(weight: Float[Tensor, "*shape"], *, axis: int = 0, groups: int = 1) -> Float[Tensor, "*shape"]:
    """w_r ← (w_r − mean w_r)/‖w_r − mean w_r‖₂ for every row r: zero sum and unit length (farhang §3.2; errata 10).

    So ‖W‖_F = √d_l, the constraint of Recipe 1. A row of a single entry can't be both centred and unit: vectors and
    weights of fan-in 1 are returned as they are. A constant row of more entries has no direction and is an error.
    """
    rows = _rows(weight, axis, groups)
    if rows.shape[1] <= 1:
        return weight.clone()
    constant = first_constant_row(rows)
    if constant is not None:
        raise ValueError(
            f"weight has equal numbers in row {constant}, which is therefore zero once it is centred: "
            "expected rows that are not constant"
        )
    exact = _precise(rows)
    exact = exact / exact.abs().amax(dim=1, keepdim=True)  # no square overflows or underflows
    exact = exact - exact.mean(dim=1, keepdim=True)
    unit = exact / torch.linalg.vector_norm(exact, dim=1, keepdim=True)
    return from_rows(torch.where(_is_centred_unit(rows), rows, unit.to(rows.dtype)), weight, axis=axis, groups=groups)


def to_frobenius_sphere(weight: Float[Tensor, "*shape"], *, axis: int = 0, groups: int = 1) -> Float[Tensor, "*shape"]:
    """W ← W·√d_l/‖W‖_F, d_l the number of rows (farhang, Recipe 1, step 3).

    d_l counts the output channels of a convolution, whose norm is the kernel's (errata 11). A weight of zeros is an
    error.
    """
    rows = _rows(weight, axis, groups)
    factor = _factor(rows, norms.frobenius(_precise(rows)), math.sqrt(len(rows)))
    return from_rows(rows * factor, weight, axis=axis, groups=groups)


def to_spectral_sphere(
    weight: Float[Tensor, "*shape"], *, radius: float | int = 1.0, axis: int = 0, groups: int = 1
) -> Float[Tensor, "*shape"]:
    """W ← W·radius/‖W‖_σ: the largest singular value of the matrix of rows becomes `radius`.

    A kernel is taken as the matrix [output channels, fan-in]. Its norm as an operator on images, which
    `norms.spectral_of_layer` gives, is another and depends on their size. A weight of zeros is an error.
    """
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius is {radius}, expected a finite number > 0")
    rows = _rows(weight, axis, groups)
    factor = _factor(rows, norms.spectral(_precise(rows)), radius)
    return from_rows(rows * factor, weight, axis=axis, groups=groups)


def first_constant_row(rows: Float[Tensor, "rows fan_in"]) -> int | None:
    """The first row whose entries are all equal, or None."""
    constant = (rows == rows[:, :1]).all(dim=1).nonzero()
    return int(constant[0]) if len(constant) else None


def _rows(weight: Tensor, axis: int, groups: int) -> Tensor:
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight is a {kind}, expected a floating-point tensor")
    rows = as_rows(weight.detach(), axis=axis, groups=groups)
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("weight has numbers that are not finite, expected finite ones to project")
    return rows


def _precise(rows: Tensor) -> Tensor:
    return rows.float() if rows.device.type == "mps" else rows.double()  # which has no float64


def _is_centred_unit(rows: Tensor) -> Tensor:
    """[rows, 1]: whether a row is centred and unit already, to the rounding of its dtype."""
    slack = _slack(rows)
    exact = _precise(rows)
    off_centre = exact.sum(dim=1, keepdim=True).abs() / math.sqrt(rows.shape[1])
    length = torch.linalg.vector_norm(exact, dim=1, keepdim=True)
    return (off_centre <= slack) & ((length - 1).abs() <= slack)


def _factor(rows: Tensor, norm: Tensor, radius: float | int) -> float:
    """radius/norm, and exactly 1 where the norm is the radius already, to the rounding of the dtype."""
    size = float(norm)
    if not size > 0:
        raise ValueError(f"weight has norm {size}, expected a norm > 0 to project")
    return 1.0 if abs(size / radius - 1) <= _slack(rows) else radius / size


def _slack(rows: Tensor) -> float:
    """What counts as on the constraint: some roundings of the dtype, but no fewer than a sum in float64 makes."""
    return max(8 * torch.finfo(rows.dtype).eps, 1e-12)
