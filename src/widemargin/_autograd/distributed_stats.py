"""Statistics of the joint batch of all processes that train together."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx


def processes() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def count(values: Tensor) -> int:
    """The number of samples of the joint batch, whose parts may differ between processes."""
    if processes() == 1:
        return len(values)
    total = torch.tensor(len(values), device=values.device)
    dist.all_reduce(total)
    return int(total)


def mean(values: Tensor) -> Tensor:
    """The mean over the joint batch; gradients flow back to the samples of every process."""
    if processes() == 1:
        return values.mean()
    total = _SumOverProcesses.apply(torch.stack([values.sum(), values.new_tensor(values.numel())]))
    return total[0] / total[1].detach()


def gather(values: Tensor) -> Tensor:
    """The values of the joint batch, flattened, without gradients; processes may hold different numbers of them."""
    flat = values.detach().flatten()
    if processes() == 1:
        return flat
    own = torch.tensor(flat.numel(), device=flat.device)
    counts = [torch.zeros_like(own) for _ in range(processes())]
    dist.all_gather(counts, own)
    longest = max(int(c) for c in counts)
    padded = torch.cat([flat, flat.new_zeros(longest - flat.numel())])
    parts = [torch.zeros_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(c)] for part, c in zip(parts, counts)])


class _SumOverProcesses(torch.autograd.Function):
    """Sum over processes. Its gradient is summed too, since the loss of every process depends on it."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:  # noqa: ARG004
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> Tensor:  # noqa: ARG004
        total = grads[0].clone()
        dist.all_reduce(total)
        return total
