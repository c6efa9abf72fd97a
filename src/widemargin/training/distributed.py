"""Sums over the processes of a training, each of which takes its share of every batch.

The gradients are summed here, after the backward pass, and not by the hooks of `DistributedDataParallel`. Those hooks
assume one forward and one backward pass a step, and losses that take gradients inside (`autograd.grad`, double
backward) are outside their contract: gradients are then silently not averaged (pytorch issue 47562).

A process that holds the share S of a joint batch B minimises Σ_{i∈S} loss_i / |B|, so the sum of the gradients is that
of the mean over B, however unequal the shares are.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn


def broadcast(model: nn.Module) -> None:
    """Give every process the weights and buffers of the first one."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            value = tensor.detach().contiguous()
            dist.broadcast(value, src=0)
            tensor.copy_(value)


@torch.no_grad()
def sum_gradients(model: nn.Module, totals: Tensor) -> Tensor:
    """Sum over the processes, in one call: the gradients of `model` in place, and `totals`, which are returned.

    A parameter without a gradient in every process keeps none. Floating-point buffers (the running statistics of
    BatchNorm) become their mean, so that the networks stay equal.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has = totals.new_tensor([float(p.grad is not None) for p in parameters])
    tensors = [totals, has, *grads, *(b / dist.get_world_size() for b in buffers)]
    flat = torch.cat([t.flatten() for t in tensors])  # of the widest dtype
    dist.all_reduce(flat)
    split = flat.split([t.numel() for t in tensors])
    parts = [part.view(t.shape).to(t.dtype) for part, t in zip(split, tensors)]
    for parameter, grad, count in zip(parameters, parts[2:], parts[1].tolist()):
        parameter.grad = grad if count else None
    for buffer, mean in zip(buffers, parts[2 + len(parameters) :]):
        buffer.copy_(mean)
    return parts[0]


def leave_group(caller: int) -> None:
    """Destroy the process group, in a process that process `caller` started for the training.

    Threads of a group that is still there can abort a process while the interpreter shuts down.
    """
    if os.getpid() != caller:
        dist.barrier()
        dist.destroy_process_group()
