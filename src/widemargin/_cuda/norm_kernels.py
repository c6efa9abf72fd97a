"""Triton kernels of norms, each of which reads its tensors once.

The l_2 norm of every sample, of which squares are summed in float64, where the square of no float32 overflows or
underflows; the weight and bias gradients of a group norm per sample; and the derivative of a normalisation.
"""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor

from widemargin.types import PerExample

L2_BLOCK, JVP_BLOCK = 1024, 4096
"""Numbers of a sample, or of a group, that a program reads at a time."""

PER_PROGRAM = 8 * L2_BLOCK
"""Numbers of a sample that one program of `l2` sums; longer samples take several programs."""


def supports(x: Tensor) -> bool:
    """Whether `l2` takes `x`: on a GPU, without a gradient, and every sample a block of memory without gaps."""
    if not x.is_cuda or x.requires_grad or x.ndim < 2 or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return False
    if not x.numel() or x.stride(0) != x.numel() // len(x):
        return False
    return x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))


def l2(x: Tensor) -> PerExample:
    """‖x_k‖_2 of every sample, in float32."""
    samples, numbers = len(x), x.numel() // len(x)
    parts = triton.cdiv(numbers, PER_PROGRAM)
    out = torch.empty(samples, dtype=torch.float32, device=x.device)
    squares = out if parts == 1 else torch.empty(samples, parts, dtype=torch.float64, device=x.device)
    _squares[(samples, parts)](
        x, squares, NUMBERS=numbers, PARTS=parts, EACH=min(PER_PROGRAM, numbers), BLOCK=L2_BLOCK, num_warps=4
    )
    if parts > 1:
        _sum[(samples,)](squares, out, PARTS=parts, COLUMNS=triton.next_power_of_2(parts), num_warps=1)
    return out


def group_norm_sums(gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    """(γ_kc, β_kc) of `layers.normalization`, `[2, batch, channels]`; all of them contiguous and float32."""
    batch, channels = gradient.shape[:2]
    pixels = gradient.numel() // (batch * channels)
    out = torch.empty(2, batch, channels, dtype=gradient.dtype, device=gradient.device)
    columns = triton.next_power_of_2(min(pixels, 1024))
    block_rows = max(1, 2048 // columns)
    rows = batch * channels
    _sums[(triton.cdiv(rows, block_rows),)](
        gradient, x, mean, rstd, out, rows,
        GROUP=channels // mean.shape[1], PIXELS=pixels, COLUMNS=columns, BLOCK_ROWS=block_rows, num_warps=4,
    )  # fmt: skip
    return out


def norm_jvp(directions: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    """As `_autograd.norm_jvp.norm_jvp`; tensors contiguous and float32."""
    rows, groups = mean.shape
    channels = x.shape[1]
    numbers = x[0].numel() // groups
    out = torch.empty_like(directions)
    block = min(triton.next_power_of_2(numbers), JVP_BLOCK)
    _norm_jvp[(len(directions) * groups,)](
        directions, x, mean, rstd, out if weight is None else weight, out, rows,
        GROUPS=groups, CHANNELS=channels // groups, NUMBERS=numbers, PIXELS=numbers * groups // channels,
        HAS_WEIGHT=weight is not None, BLOCK=block, num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return out


def _squares_kernel(  # type: ignore[no-untyped-def]
    xs, out, NUMBERS: tl.constexpr, PARTS: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    sample = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, EACH, BLOCK):
        number = part * EACH + start + tl.arange(0, BLOCK)
        x = tl.load(xs + sample * NUMBERS + number, mask=number < NUMBERS, other=0.0).to(tl.float64)
        total += x * x
    square = tl.sum(total, axis=0)
    if PARTS == 1:
        tl.store(out + sample, tl.sqrt(square).to(tl.float32))
    else:
        tl.store(out + sample * PARTS + part, square)


def _sum_kernel(squares, out, PARTS: tl.constexpr, COLUMNS: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    sample = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    part = tl.load(squares + sample * PARTS + column, mask=column < PARTS, other=0.0)
    tl.store(out + sample, tl.sqrt(tl.sum(part, axis=0)).to(tl.float32))


def _sums_kernel(  # type: ignore[no-untyped-def]
    gradients, xs, means, rstds, out, rows,
    GROUP: tl.constexpr, PIXELS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_ROWS: tl.constexpr,
) -> None:  # fmt: skip
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


def _norm_jvp_kernel(  # type: ignore[no-untyped-def]
    directions, xs, means, rstds, weights, out, rows,
    GROUPS: tl.constexpr, CHANNELS: tl.constexpr, NUMBERS: tl.constexpr, PIXELS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    group = program % (rows * GROUPS)
    mean = tl.load(means + group)
    rstd = tl.load(rstds + group)
    totals = tl.zeros((BLOCK,), tl.float32)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, NUMBERS, BLOCK):
        number = start + tl.arange(0, BLOCK)
        inside = number < NUMBERS
        u = tl.load(directions + program * NUMBERS + number, mask=inside, other=0.0)
        x = tl.load(xs + group * NUMBERS + number, mask=inside, other=0.0)
        totals += u
        products += u * (x - mean)
    level = tl.sum(totals, axis=0) / NUMBERS
    slope = tl.sum(products, axis=0) / NUMBERS * rstd * rstd
    for start in range(0, NUMBERS, BLOCK):  # read from the cache this time
        number = start + tl.arange(0, BLOCK)
        inside = number < NUMBERS
        u = tl.load(directions + program * NUMBERS + number, mask=inside, other=0.0)
        x = tl.load(xs + group * NUMBERS + number, mask=inside, other=0.0)
        moved = (u - level - (x - mean) * slope) * rstd
        if HAS_WEIGHT:
            channel = (group % GROUPS) * CHANNELS + number // PIXELS
            moved *= tl.load(weights + channel, mask=inside, other=0.0)
        tl.store(out + program * NUMBERS + number, moved, mask=inside)


# Triton compiles the source of the plain function, not of a wrapper that checks types.
_squares, _sum, _sums, _norm_jvp = (
    triton.jit(inspect.unwrap(kernel)) for kernel in (_squares_kernel, _sum_kernel, _sums_kernel, _norm_jvp_kernel)
)
