"""BatchNorm whose batch statistics are constants in the gradients at places, and only there.

In training mode a BatchNorm layer computes y = w·(x − m(x))/√(v(x) + ε) + b with the mean m and variance v of the whole
batch. The gradient of one sample's score then reaches every sample's activation, and the sum over the batch, from which
per-sample gradients are read, is about as wrong as it is right. With m and v held constant the layer is affine in its
own sample alone, and per-sample gradients are exact for that function.

The layer runs once, as always (running statistics are updated once). A switch after it sends gradients one of two ways:
while gradients at places are taken, past the layer as g·w/√(v + ε); in `loss.backward()`, through the layer as always.
The price: a variance a layer. With `second_order=True` the derivative of w/√(v + ε) is the true one, so that weight
gradients of a margin flow through the batch statistics wherever they occur in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from widemargin.types import wide


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
        lambda _, inputs, output: switch(output, inputs[0], scale(module, inputs[0]), route)
    )


def switch(output: Tensor, x: Tensor, scale: Tensor, route: Route) -> Tensor:
    """`output` of the layer at `x` as it is; its gradient follows `route`: through the layer, or past it by `scale`."""
    result: Tensor = _Switch.apply(output, x, scale, route)
    return result


def scale(module: _BatchNorm, x: Tensor) -> Tensor:
    """w/√(v + ε), of a shape that multiplies `x`, as a function of `x` and w in the graph."""
    # In float32 under autocast, as BatchNorm itself does.
    numbers = wide(x)
    factor = torch.rsqrt(numbers.var([0, *range(2, x.ndim)], correction=0) + module.eps)
    if module.affine:
        factor = factor * module.weight
    return factor.view(1, -1, *[1] * (x.ndim - 2))


class _Switch(torch.autograd.Function):
    """Forward: the layer's output as it is. Backward: through the layer, or past it with constant statistics."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, x: Tensor, scale: Tensor, route: Route) -> Tensor:
        ctx.route, ctx.dtype = route, x.dtype
        ctx.save_for_backward(scale)
        ctx.mark_dirty(output)  # the same tensor, no view of it: what follows may be an in-place ReLU
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        if not ctx.route.is_frozen:
            return grads[0], None, None, None
        (scale,) = ctx.saved_tensors
        return None, (grads[0] * scale).to(ctx.dtype), None, None
