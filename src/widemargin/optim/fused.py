"""Triton kernel of Nero's step: every row is read once and written once. `nero.advance_` explains the rule."""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

_NUMBERS = 4096  # per program, at least: it takes many short rows at a time


def advance_(
    rows: Float[Tensor, "rows fan_in"],
    gradient: Float[Tensor, "rows fan_in"],
    v: Float[Tensor, " rows"],
    pace: Float[Tensor, " rows"] | Float[Tensor, ""] | float,
    *,
    beta: float | int,
) -> None:
    """p ← centred unit rows of p − pace·g/√v, v ← βv + (1−β)‖g‖², in place on `rows` and `v`, in float32."""
    count, fan_in = rows.shape
    pace = pace.to(v.dtype).expand_as(v).contiguous() if isinstance(pace, Tensor) else torch.full_like(v, pace)
    columns = triton.next_power_of_2(fan_in)
    together = max(1, min(_NUMBERS // columns, 64))
    warps = 4 if columns * together <= 4096 else 8
    _kernel[(triton.cdiv(count, together),)](
        rows, gradient, v, pace, count, float(beta), 1 - float(beta),
        FAN_IN=fan_in, STRIDE=rows.stride(0), GRADIENT_STRIDE=gradient.stride(0), TOGETHER=together, COLUMNS=columns,
        num_warps=warps,
    )  # fmt: skip


def _advance(  # type: ignore[no-untyped-def]
    rows, gradients, vs, paces, count, beta, rest,
    FAN_IN: tl.constexpr, STRIDE: tl.constexpr, GRADIENT_STRIDE: tl.constexpr, TOGETHER: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * TOGETHER + tl.arange(0, TOGETHER)
    column = tl.arange(0, COLUMNS)
    is_row = number < count
    inside = is_row[:, None] & (column < FAN_IN)[None, :]
    g = tl.load(gradients + number[:, None] * GRADIENT_STRIDE + column[None, :], mask=inside, other=0.0)
    place = rows + number[:, None] * STRIDE + column[None, :]
    p = tl.load(place, mask=inside, other=0.0)
    v = tl.load(vs + number, mask=is_row, other=0.0) * beta + tl.sum(g * g, axis=1) * rest
    tl.store(vs + number, v, mask=is_row)
    pace = tl.load(paces + number, mask=is_row, other=0.0)
    speed = tl.where(v > 0, pace / tl.sqrt_rn(tl.where(v > 0, v, 1.0)), 0.0)
    new = p - speed[:, None] * g
    new = tl.where(inside, new - (tl.sum(new, axis=1) / FAN_IN)[:, None], 0.0)
    new = tl.where(inside, new - (tl.sum(new, axis=1) / FAN_IN)[:, None], 0.0)
    length = tl.sqrt_rn(tl.sum(new * new, axis=1))
    stays = length == 0
    unit = new / tl.where(stays, 1.0, length)[:, None]
    tl.store(place, tl.where(stays[:, None], p, unit), mask=inside)


# Triton needs the source of the function itself, without the wrapper of a type checker.
_kernel = triton.jit(inspect.unwrap(_advance))
