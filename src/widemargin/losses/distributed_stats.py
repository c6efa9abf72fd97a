"""Statistics of the joint batch: of all processes that train together, or of this one where it is alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def processes() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def count(values: Tensor) -> int:
    """How many samples the joint batch has: the same answer in every process, however unequal their shares are."""
    if processes() == 1:
        return len(values)
    total = torch.tensor(len(values), device=values.device)
    dist.all_reduce(total)
    return int(total)


def mean(values: Tensor) -> Tensor:
    """The mean over the joint batch; gradients flow back to the samples of every process."""
    if processes() == 1:
        return values.mean()
    total = _Sum.apply(torch.stack([values.sum(), values.new_tensor(values.numel())]))
    return total[0] / total[1].detach()


def gather(values: Tensor) -> Tensor:
    """The values of the joint batch, flattened, without gradients; processes may hold different numbers of them."""
    flat = values.detach().flatten()
    if processes() == 1:
        return flat
    counts = [torch.zeros_like(c) for _ in range(processes()) for c in [torch.tensor(flat.numel(), device=flat.device)]]
    dist.all_gather(counts, torch.tensor(flat.numel(), device=flat.device))
    longest = max(int(c) for c in counts)
    padded = torch.cat([flat, flat.new_zeros(longest - flat.numel())])
    parts = [torch.zeros_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(c)] for part, c in zip(parts, counts)])


def gather_rows(values: Tensor) -> Tensor:
    """`gather` of every row of `[rows, …]`."""
    if processes() == 1:
        return values.detach().flatten(1)
    return torch.stack([gather(row) for row in values])


class _Sum(torch.autograd.Function):
    """Sum over processes; its gradient is summed over them too, since every process's loss depends on it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # noqa: ARG004
        total = grads[0].clone()
        dist.all_reduce(total)
        return total
