"""Triton kernel for the weight and bias gradients of a group norm per sample, which reads both tensors once."""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor


def sums(gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    """(γ_kc, β_kc) of `layers.normalization`, `[2, batch, channels]`; all of them contiguous and float32."""
    batch, channels = gradient.shape[:2]
    pixels = gradient.numel() // (batch * channels)
    out = torch.empty(2, batch, channels, dtype=gradient.dtype, device=gradient.device)
    columns = triton.next_power_of_2(min(pixels, 1024))
    block_rows = max(1, 2048 // columns)
    rows = batch * channels
    _kernel[(triton.cdiv(rows, block_rows),)](
        gradient, x, mean, rstd, out, rows,
        GROUP=channels // mean.shape[1], PIXELS=pixels, COLUMNS=columns, BLOCK_ROWS=block_rows, num_warps=4,
    )  # fmt: skip
    return out


def _sums(  # type: ignore[no-untyped-def]
    gradients,
    xs,
    means,
    rstds,
    out,
    rows,
    GROUP: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = row < rows
    products = tl.zeros((BLOCK_ROWS, COLUMNS), tl.float32)
    totals = tl.zeros((BLOCK_ROWS, COLUMNS), tl.float32)
    for start in range(0, PIXELS, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = is_row[:, None] & (column < PIXELS)[None, :]
        offset = row[:, None] * PIXELS + column[None, :]
        g = tl.load(gradients + offset, mask=inside, other=0.0)
        products += g * tl.load(xs + offset, mask=inside, other=0.0)
        totals += g
    beta = tl.sum(totals, axis=1)
    mean = tl.load(means + row // GROUP, mask=is_row, other=0.0)
    rstd = tl.load(rstds + row // GROUP, mask=is_row, other=0.0)
    tl.store(out + row, (tl.sum(products, axis=1) - beta * mean) * rstd, mask=is_row)
    tl.store(out + rows + row, beta, mask=is_row)


# Triton compiles the source of the plain function, not of a wrapper that checks types.
_kernel = triton.jit(inspect.unwrap(_sums))
