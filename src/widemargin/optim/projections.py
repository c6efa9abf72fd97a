"""Projections of weights: functions of a tensor that do not change a weight which satisfies the constraint.

Each is idempotent, so weights of a stored run do not change when its optimizer is built again. Sums are taken in
float64. `axis` and `groups` tell where the rows are, see `optim.rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin import norms
from widemargin.checks import check_finite, check_floating, check_number
from widemargin.optim.rows import as_rows, from_rows


def to_centred_unit_rows(weight: Float[Tensor, "*shape"], *, axis: int = 0, groups: int = 1) -> Float[Tensor, "*shape"]:
    """w_r ← (w_r − mean w_r)/‖w_r − mean w_r‖₂ for every row r: zero sum and unit length (farhang §3.2; errata 10).

    So ‖W‖_F = √d_l, the constraint of Recipe 1. A row of one entry can't be both centred and unit: vectors and
    weights of fan-in 1 are returned unchanged. A constant row of more entries has no direction and is an error.
    """
    rows = _rows(weight, axis, groups)
    if rows.shape[1] <= 1:
        return weight.clone()
    constant = (rows == rows[:, :1]).all(dim=1).nonzero()
    if len(constant):
        raise ValueError(f"weight has equal numbers in row {int(constant[0])}, expected rows that are not constant")
    exact, slack = _precise(rows), _slack(rows)
    off_centre = exact.sum(dim=1, keepdim=True).abs() / math.sqrt(rows.shape[1])
    off_length = (torch.linalg.vector_norm(exact, dim=1, keepdim=True) - 1).abs()
    exact = exact / exact.abs().amax(dim=1, keepdim=True)  # no square overflows or underflows
    exact = exact - exact.mean(dim=1, keepdim=True)
    unit = exact / torch.linalg.vector_norm(exact, dim=1, keepdim=True)
    new = torch.where((off_centre <= slack) & (off_length <= slack), rows, unit.to(rows.dtype))
    return from_rows(new, weight, axis=axis, groups=groups)


def to_frobenius_sphere(weight: Float[Tensor, "*shape"], *, axis: int = 0, groups: int = 1) -> Float[Tensor, "*shape"]:
    """W ← W·√d_l/‖W‖_F, d_l the number of rows (farhang, Recipe 1, step 3).

    For a convolution, d_l counts output channels and the norm is the kernel's (errata 11). Zero weights are an error.
    """
    return _scaled(weight, norms.frobenius, None, axis, groups)


def to_spectral_sphere(
    weight: Float[Tensor, "*shape"], *, radius: float | int = 1.0, axis: int = 0, groups: int = 1
) -> Float[Tensor, "*shape"]:
    """W ← W·radius/‖W‖_σ: the largest singular value of the matrix of rows becomes `radius`.

    A kernel is taken as the matrix [output channels, fan-in]. Its norm as an operator on images, which
    `norms.spectral_of_layer` gives, is another and depends on their size. A weight of zeros is an error.
    """
    check_number("radius", radius, above=0.0)
    return _scaled(weight, norms.spectral, radius, axis, groups)


def _rows(weight: Tensor, axis: int, groups: int) -> Tensor:
    check_floating(weight, "weight")
    rows = as_rows(weight.detach(), axis=axis, groups=groups)
    check_finite(rows, "weight")
    return rows


def _precise(rows: Tensor) -> Tensor:
    return rows.float() if rows.device.type == "mps" else rows.double()  # which has no float64


def _scaled(
    weight: Tensor, norm: Callable[[Tensor], Tensor], radius: float | int | None, axis: int, groups: int
) -> Tensor:
    """`weight` at `radius` (None: √rows), unchanged if its norm is that up to rounding."""
    rows = _rows(weight, axis, groups)
    size, radius = float(norm(_precise(rows))), math.sqrt(len(rows)) if radius is None else radius
    if not size > 0:
        raise ValueError(f"weight has norm {size}, expected a norm > 0 to project")
    factor = 1.0 if abs(size / radius - 1) <= _slack(rows) else radius / size
    return from_rows(rows * factor, weight, axis=axis, groups=groups)


def _slack(rows: Tensor) -> float:
    """The tolerance of the constraint: some ulps of the dtype, at least the rounding of a sum in float64."""
    return max(8 * torch.finfo(rows.dtype).eps, 1e-12)
