"""Triton kernel of `_autograd.norm_jvp`, which reads both tensors once."""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Numbers of a group that a program reads at a time."""


def norm_jvp(directions: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    """As `_autograd.norm_jvp.norm_jvp`; tensors contiguous and float32."""
    rows, groups = mean.shape
    channels = x.shape[1]
    numbers = x[0].numel() // groups
    out = torch.empty_like(directions)
    block = min(triton.next_power_of_2(numbers), BLOCK)
    _kernel[(len(directions) * groups,)](
        directions, x, mean, rstd, out if weight is None else weight, out, rows,
        GROUPS=groups, CHANNELS=channels // groups, NUMBERS=numbers, PIXELS=numbers * groups // channels,
        HAS_WEIGHT=weight is not None, BLOCK=block, num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return out


def _norm_jvp(  # type: ignore[no-untyped-def]
    directions,
    xs,
    means,
    rstds,
    weights,
    out,
    rows,
    GROUPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    NUMBERS: tl.constexpr,
    PIXELS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
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
_kernel = triton.jit(inspect.unwrap(_norm_jvp))
