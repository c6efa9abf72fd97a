"""Triton kernel for the l_2 norm of every sample, which reads each sample once.

Squares are summed in float64, where the square of no float32 overflows or underflows.
"""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor

from widemargin.types import PerExample

BLOCK = 1024
"""Numbers of a sample that a program reads at a time."""

PER_PROGRAM = 8 * BLOCK
"""Numbers of a sample that one program sums; longer samples take several programs."""


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
    _kernel[(samples, parts)](
        x, squares, NUMBERS=numbers, PARTS=parts, EACH=min(PER_PROGRAM, numbers), BLOCK=BLOCK, num_warps=4
    )
    if parts > 1:
        _sum_kernel[(samples,)](squares, out, PARTS=parts, COLUMNS=triton.next_power_of_2(parts), num_warps=1)
    return out


def _squares(  # type: ignore[no-untyped-def]
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


def _sum(squares, out, PARTS: tl.constexpr, COLUMNS: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    sample = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    part = tl.load(squares + sample * PARTS + column, mask=column < PARTS, other=0.0)
    tl.store(out + sample, tl.sqrt(tl.sum(part, axis=0)).to(tl.float32))


# Triton compiles the source of the plain function, not of a wrapper that checks types.
_kernel = triton.jit(inspect.unwrap(_squares))
_sum_kernel = triton.jit(inspect.unwrap(_sum))
