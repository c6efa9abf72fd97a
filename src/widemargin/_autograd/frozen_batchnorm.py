"""BatchNorm whose batch statistics are constants in the gradients at places, and only there.

In training mode a BatchNorm layer computes y = w·(x − m(x))/√(v(x) + ε) + b with the mean m and variance v of the whole
batch. The gradient of one sample's score then reaches the activations of every sample, so per-sample gradients can't be
read from the gradient of a sum over the batch. With m and v held constant the layer is affine in each sample, and
per-sample gradients are exact for that function.

The layer runs once, as usual (running statistics are updated once). A switch after it routes the gradients: while
gradients at places are taken, past the layer as g·w/√(v + ε); in `loss.backward()`, through the layer. The cost is one
variance per layer. With `second_order=True` the derivative of w/√(v + ε) is exact, so weight gradients of a margin flow
through the batch statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from widemargin.types import AutogradContext, wide


class Route:
    """Route of gradients at the watched BatchNorm layers: through them, or past them with constant statistics.

    A plain attribute, not a thread-local one: on a GPU autograd runs the backward pass in other threads.
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
    """Make the gradients of `module`, a BatchNorm layer in training mode, follow `route` until the hook is removed."""
    if isinstance(module, nn.SyncBatchNorm):
        raise TypeError(
            "statistics is 'frozen', which does not support SyncBatchNorm: expected BatchNorm1d, 2d or 3d, or 'coupled'"
        )
    assert isinstance(module, _BatchNorm)
    return module.register_forward_hook(
        lambda _, inputs, output: switch(output, inputs[0], scale(module, inputs[0]), route)
    )


def switch(output: Tensor, x: Tensor, scale: Tensor, route: Route) -> Tensor:
    """`output` of the layer at `x`; its gradient follows `route`: through the layer, or past it by `scale`."""
    result: Tensor = _Switch.apply(output, x, scale, route)
    return result


def scale(module: _BatchNorm, x: Tensor) -> Tensor:
    """w/√(v + ε), broadcastable to `x`, with a graph to `x` and w."""
    variance = wide(x).var([0, *range(2, x.ndim)], correction=0)  # float32 under autocast, as in BatchNorm itself
    factor = torch.rsqrt(variance + module.eps)
    if module.affine:
        factor = factor * module.weight
    return factor.view(1, -1, *[1] * (x.ndim - 2))


class _Switch(torch.autograd.Function):
    """Forward: the layer's output. Backward: through the layer, or past it with constant statistics."""

    @staticmethod
    def forward(ctx: AutogradContext, output: Tensor, x: Tensor, scale: Tensor, route: Route) -> Tensor:
        ctx.route, ctx.dtype = route, x.dtype
        ctx.save_for_backward(scale)
        ctx.mark_dirty(output)  # the same tensor, not a view: an in-place ReLU may follow
        return output

    @staticmethod
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        if not ctx.route.is_frozen:
            return grads[0], None, None, None
        (scale,) = ctx.saved_tensors
        return None, (grads[0] * scale).to(ctx.dtype), None, None
