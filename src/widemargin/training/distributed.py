"""Processes of a training: Lightning Fabric starts them, each takes its share of every batch, gradients are summed.

The gradients are summed here, after the backward pass, and not by the hooks of `DistributedDataParallel`. Those hooks
assume one forward and one backward pass a step, and losses that take gradients inside (`autograd.grad`, double
backward) are outside their contract: gradients are then silently not averaged (pytorch issue 47562).

A process that holds the share S of a joint batch B minimises Σ_{i∈S} loss_i / |B|, so the sum of the gradients is that
of the mean over B, however unequal the shares are.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from widemargin._io.optional import not_installed
from widemargin.training.config import Devices

Fabric: TypeAlias = Any
"""`lightning_fabric.Fabric`, which is imported when it is needed."""


def fabric(devices: Devices) -> Fabric:
    """A Fabric of these settings, from `lightning_fabric` or `lightning.fabric`."""
    for name in ("lightning_fabric", "lightning.fabric"):  # on its own, or inside lightning
        try:
            kind = importlib.import_module(name).Fabric
        except ImportError:
            continue
        count = devices.count if isinstance(devices.count, (int, str)) else list(devices.count)
        return kind(
            accelerator=devices.accelerator,
            devices=count,
            strategy=devices.strategy,
            precision=devices.precision or "32-true",
        )
    raise not_installed("lightning_fabric", "fit")


@contextmanager
def quiet() -> Iterator[None]:
    """Fabric's loggers log nothing below a warning inside the `with` block."""
    loggers = [logging.getLogger(name) for name in ("lightning_fabric", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


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
    parts = _sum([totals, has, *grads, *(b / dist.get_world_size() for b in buffers)])
    for parameter, grad, count in zip(parameters, parts[2:], parts[1].tolist()):
        parameter.grad = grad if count else None
    for buffer, mean in zip(buffers, parts[2 + len(parameters) :]):
        buffer.copy_(mean)
    return parts[0]


def _sum(tensors: Sequence[Tensor]) -> list[Tensor]:
    flat = torch.cat([t.flatten() for t in tensors])  # of the widest dtype
    dist.all_reduce(flat)
    parts = flat.split([t.numel() for t in tensors])
    return [part.view(t.shape).to(t.dtype) for part, t in zip(parts, tensors)]
