"""The two sums of a group norm as one kernel for GPUs, which reads both tensors once. Needs Triton, as torch does."""

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
    found = torch.empty(2, batch, channels, dtype=gradient.dtype, device=gradient.device)
    columns = triton.next_power_of_2(min(pixels, 1024))
    together = max(1, 2048 // columns)
    rows = batch * channels
    _kernel[(triton.cdiv(rows, together),)](
        gradient, x, mean, rstd, found, rows,
        GROUP=channels // mean.shape[1], PIXELS=pixels, COLUMNS=columns, TOGETHER=together, num_warps=4,
    )  # fmt: skip
    return found


def _sums(  # type: ignore[no-untyped-def]
    gradients,
    xs,
    means,
    rstds,
    found,
    rows,
    GROUP: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOGETHER: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * TOGETHER + tl.arange(0, TOGETHER)
    is_row = row < rows
    products = tl.zeros((TOGETHER, COLUMNS), tl.float32)
    plain = tl.zeros((TOGETHER, COLUMNS), tl.float32)
    for start in range(0, PIXELS, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = is_row[:, None] & (column < PIXELS)[None, :]
        place = row[:, None] * PIXELS + column[None, :]
        g = tl.load(gradients + place, mask=inside, other=0.0)
        products += g * tl.load(xs + place, mask=inside, other=0.0)
        plain += g
    beta = tl.sum(plain, axis=1)
    mean = tl.load(means + row // GROUP, mask=is_row, other=0.0)
    rstd = tl.load(rstds + row // GROUP, mask=is_row, other=0.0)
    tl.store(found + row, (tl.sum(products, axis=1) - beta * mean) * rstd, mask=is_row)
    tl.store(found + rows + row, beta, mask=is_row)


# Triton reads the source of the function as it was written, whatever a checker of types has put around it.
_kernel = triton.jit(inspect.unwrap(_sums))
