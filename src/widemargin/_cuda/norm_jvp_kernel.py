"""`forward_norms.along` as one kernel for GPUs, which reads both tensors once. Needs Triton, as torch does."""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor

AT_ONCE = 4096
"""Numbers of a group that a program reads at a time."""


def along(directions: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    """As `forward_norms.along`; all of them contiguous and float32."""
    rows, groups = mean.shape
    channels = x.shape[1]
    numbers = x[0].numel() // groups
    found = torch.empty_like(directions)
    at_once = min(triton.next_power_of_2(numbers), AT_ONCE)
    _kernel[(len(directions) * groups,)](
        directions, x, mean, rstd, found if weight is None else weight, found, rows,
        GROUPS=groups, CHANNELS=channels // groups, NUMBERS=numbers, PIXELS=numbers * groups // channels,
        HAS_WEIGHT=weight is not None, AT_ONCE=at_once, num_warps=max(1, min(8, at_once // 256)),
    )  # fmt: skip
    return found


def _along(  # type: ignore[no-untyped-def]
    directions,
    xs,
    means,
    rstds,
    weights,
    found,
    rows,
    GROUPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    NUMBERS: tl.constexpr,
    PIXELS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    AT_ONCE: tl.constexpr,
) -> None:
    program = tl.program_id(0).to(tl.int64)
    of_x = program % (rows * GROUPS)
    mean = tl.load(means + of_x)
    rstd = tl.load(rstds + of_x)
    plain = tl.zeros((AT_ONCE,), tl.float32)
    products = tl.zeros((AT_ONCE,), tl.float32)
    for start in range(0, NUMBERS, AT_ONCE):
        number = start + tl.arange(0, AT_ONCE)
        inside = number < NUMBERS
        u = tl.load(directions + program * NUMBERS + number, mask=inside, other=0.0)
        x = tl.load(xs + of_x * NUMBERS + number, mask=inside, other=0.0)
        plain += u
        products += u * (x - mean)
    level = tl.sum(plain, axis=0) / NUMBERS
    slope = tl.sum(products, axis=0) / NUMBERS * rstd * rstd
    for start in range(0, NUMBERS, AT_ONCE):  # the second time from the cache
        number = start + tl.arange(0, AT_ONCE)
        inside = number < NUMBERS
        u = tl.load(directions + program * NUMBERS + number, mask=inside, other=0.0)
        x = tl.load(xs + of_x * NUMBERS + number, mask=inside, other=0.0)
        moved = (u - level - (x - mean) * slope) * rstd
        if HAS_WEIGHT:
            channel = (of_x % GROUPS) * CHANNELS + number // PIXELS
            moved *= tl.load(weights + channel, mask=inside, other=0.0)
        tl.store(found + program * NUMBERS + number, moved, mask=inside)


# Triton reads the source of the function as it was written, whatever a checker of types has put around it.
_kernel = triton.jit(inspect.unwrap(_along))
