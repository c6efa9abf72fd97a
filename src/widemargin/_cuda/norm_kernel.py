"""The l_2 norm of every sample by one kernel for GPUs, which reads it once. Needs Triton, which torch brings along.

Squares are added up in float64, where those of no float32 overflow or underflow.
"""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor

from widemargin.types import PerExample

AT_ONCE = 1024
"""Numbers that a program reads at a time, of one sample."""

ALONE = 8 * AT_ONCE
"""Numbers of a sample that one program goes through; of a longer one each takes so many."""


def is_for(x: Tensor) -> bool:
    """Whether `l2` takes it: on a GPU, without a gradient, and every sample a block of memory without gaps."""
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
    parts = triton.cdiv(numbers, ALONE)
    found = torch.empty(samples, dtype=torch.float32, device=x.device)
    squares = found if parts == 1 else torch.empty(samples, parts, dtype=torch.float64, device=x.device)
    _kernel[(samples, parts)](
        x, squares, NUMBERS=numbers, PARTS=parts, EACH=min(ALONE, numbers), AT_ONCE=AT_ONCE, num_warps=4
    )
    if parts > 1:
        _ending[(samples,)](squares, found, PARTS=parts, COLUMNS=triton.next_power_of_2(parts), num_warps=1)
    return found


def _squares(  # type: ignore[no-untyped-def]
    xs, found, NUMBERS: tl.constexpr, PARTS: tl.constexpr, EACH: tl.constexpr, AT_ONCE: tl.constexpr
) -> None:
    sample = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    total = tl.zeros((AT_ONCE,), tl.float64)
    for start in range(0, EACH, AT_ONCE):
        number = part * EACH + start + tl.arange(0, AT_ONCE)
        x = tl.load(xs + sample * NUMBERS + number, mask=number < NUMBERS, other=0.0).to(tl.float64)
        total += x * x
    square = tl.sum(total, axis=0)
    if PARTS == 1:
        tl.store(found + sample, tl.sqrt(square).to(tl.float32))
    else:
        tl.store(found + sample * PARTS + part, square)


def _end(squares, found, PARTS: tl.constexpr, COLUMNS: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    sample = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    part = tl.load(squares + sample * PARTS + column, mask=column < PARTS, other=0.0)
    tl.store(found + sample, tl.sqrt(tl.sum(part, axis=0)).to(tl.float32))


# Triton reads the source of the function as it was written, whatever a checker of types has put around it.
_kernel = triton.jit(inspect.unwrap(_squares))
_ending = triton.jit(inspect.unwrap(_end))
