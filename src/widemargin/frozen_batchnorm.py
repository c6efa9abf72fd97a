"""BatchNorm whose batch statistics are constants in the gradients at places, and only there.

In training mode a BatchNorm layer computes y = w·(x − m(x))/√(v(x) + ε) + b with the mean m and variance v of the whole
batch. The gradient of one sample's score then reaches every sample's activation, and the sum over the batch, from which
per-sample gradients are read, is about as wrong as it is right. With m and v held constant the layer is affine in its
own sample alone, and per-sample gradients are exact for that function.

The layer runs once, as always (running statistics are updated once). Beside its output stands the same value computed
with constant statistics, and a switch in the graph sends gradients down the one or the other: the frozen one while
gradients at places are taken, the true one in `loss.backward()`. The price: a `var_mean` and an affine map a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle


class Route:
    """Which way gradients go through the watched BatchNorm layers now.

    A plain attribute, not a thread-local one: on a GPU autograd runs the backward pass in threads of its own.
    """

    def __init__(self) -> None:
        self.is_frozen = False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold the batch statistics constant in gradients taken inside the `with` block."""
        self.is_frozen = True
        try:
            yield
        finally:
            self.is_frozen = False


def freeze(module: nn.Module, route: Route) -> RemovableHandle:
    """Make the gradients through `module`, a BatchNorm layer in training mode, follow `route`, until removed."""
    if isinstance(module, nn.SyncBatchNorm):
        raise TypeError("statistics='frozen' does not know SyncBatchNorm, expected BatchNorm1d, 2d or 3d, or 'coupled'")
    assert isinstance(module, _BatchNorm)
    return module.register_forward_hook(
        lambda _, inputs, output: _Switch.apply(output, _with_constant_statistics(module, inputs[0], output), route)
    )


def _with_constant_statistics(module: _BatchNorm, x: Tensor, like: Tensor) -> Tensor:
    dims = [0, *range(2, x.ndim)]
    shape = [1, -1] + [1] * (x.ndim - 2)
    # In float32 under autocast, as BatchNorm itself does.
    variance, mean = torch.var_mean(
        x.detach().float() if x.dtype in (torch.float16, torch.bfloat16) else x.detach(), dims, correction=0
    )
    scale = torch.rsqrt(variance + module.eps)
    shift = -mean * scale
    if module.affine:
        scale, shift = scale * module.weight, shift * module.weight + module.bias
    return (x * scale.view(shape) + shift.view(shape)).to(like.dtype)


class _Switch(torch.autograd.Function):
    """Forward: the true output. Backward: the gradient goes to the true output, or to the frozen one."""

    @staticmethod
    def forward(ctx: Any, true: Tensor, frozen: Tensor, route: Route) -> Tensor:  # noqa: ARG004
        ctx.route = route
        return true.view_as(true)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        return (None, grads[0], None) if ctx.route.is_frozen else (grads[0], None, None)
