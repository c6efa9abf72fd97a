"""The two sums of a group norm as one kernel for GPUs, which reads both tensors once. Needs Triton, as torch does."""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor


def sums(gradient: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(Σ gradient·x, Σ gradient) over the pixels of `[batch, channels, ...]`, both contiguous and float32."""
    batch, channels = gradient.shape[:2]
    pixels = gradient.numel() // (batch * channels)
    ds, db = torch.empty(2, batch, channels, dtype=gradient.dtype, device=gradient.device).unbind()
    columns = triton.next_power_of_2(min(pixels, 1024))
    together = max(1, 2048 // columns)
    rows = batch * channels
    _kernel[(triton.cdiv(rows, together),)](
        gradient, x, ds, db, rows, PIXELS=pixels, COLUMNS=columns, TOGETHER=together, num_warps=4
    )
    return ds, db


def _sums(  # type: ignore[no-untyped-def]
    gradients, xs, dss, dbs, rows, PIXELS: tl.constexpr, COLUMNS: tl.constexpr, TOGETHER: tl.constexpr
) -> None:
    row = tl.program_id(0).to(tl.int64) * TOGETHER + tl.arange(0, TOGETHER)
    is_row = row < rows
    ds = tl.zeros((TOGETHER, COLUMNS), tl.float32)
    db = tl.zeros((TOGETHER, COLUMNS), tl.float32)
    for start in range(0, PIXELS, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = is_row[:, None] & (column < PIXELS)[None, :]
        place = row[:, None] * PIXELS + column[None, :]
        g = tl.load(gradients + place, mask=inside, other=0.0)
        ds += g * tl.load(xs + place, mask=inside, other=0.0)
        db += g
    tl.store(dss + row, tl.sum(ds, axis=1), mask=is_row)
    tl.store(dbs + row, tl.sum(db, axis=1), mask=is_row)


# Triton reads the source of the function as it was written, whatever a checker of types has put around it.
_kernel = triton.jit(inspect.unwrap(_sums))
