"""Rules of activations, and the Lipschitz constants of all piecewise affine layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.layers.forms import Slopes
from widemargin.layers.registry import form_of, register


@register("pieces", nn.ReLU)
def relu(_: nn.ReLU, __: Tensor) -> Slopes:
    """max(h, 0)."""
    return Slopes(negative=0.0, positive=1.0)


@register("pieces", nn.LeakyReLU)
def leaky_relu(module: nn.LeakyReLU, _: Tensor) -> Slopes:
    """h for h > 0, negative_slope·h else."""
    return Slopes(negative=float(module.negative_slope), positive=1.0)


@register("pieces", nn.PReLU)
def prelu(module: nn.PReLU, _: Tensor) -> Slopes | None:
    """As LeakyReLU, with one trained slope; None for a slope per channel."""
    return Slopes(negative=float(module.weight), positive=1.0) if module.num_parameters == 1 else None


@register("lipschitz", nn.ReLU, nn.LeakyReLU, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
def lipschitz(module: nn.Module, x: Tensor) -> float:
    """The constant of the piecewise affine form."""
    form = form_of(module, x)
    assert form is not None
    return form.lipschitz


@register("jvp", nn.ReLU, F.relu, torch.relu, Tensor.relu)
def relu_jvp(
    function: Callable[..., Tensor], value: Tensor, tangent: Tensor, inplace: bool = False
) -> tuple[Tensor, Tensor] | None:
    """As the backward pass does it: torch's own rule would also keep the derivative in memory."""
    if inplace:
        return None
    out = function(value)
    with torch.no_grad():
        return out, torch.ops.aten.threshold_backward(tangent, out, 0)


@register("jvp", nn.GELU, F.gelu)
def gelu_jvp(
    function: Callable[..., Tensor], value: Tensor, tangent: Tensor, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """As ReLU: the derivative of an entrywise function is the same forwards and backwards."""
    with torch.no_grad():
        moved = torch.ops.aten.gelu_backward(tangent, value, approximate=approximate)
    return function(value, approximate=approximate), moved
