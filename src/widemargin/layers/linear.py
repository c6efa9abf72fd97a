"""Rules of `nn.Linear`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import norms
from widemargin.layers.forms import Affine, double, zeros_like
from widemargin.layers.registry import WeightGradient, WeightGradients, register
from widemargin.types import Node

register("operator_norm", nn.Linear)(norms.spectral_of_layer)


@register("affine", nn.Linear)
def affine(module: nn.Linear, x: Tensor) -> Affine:
    """Wx + b at every position of a sequence."""
    weight, zeros = double(module.weight), zeros_like(x)

    def row_norms(q: float, of: Tensor | None) -> Tensor:
        return norms.lp(weight if of is None else of, q).expand(*zeros.shape[1:-1], -1)

    return Affine(
        zeros=zeros,
        linear=lambda v: F.linear(v, weight),
        bias=None if module.bias is None else double(module.bias),
        absolute=lambda r: F.linear(r, weight.abs()),
        transposed=lambda rows: rows @ weight,
        row_norms=row_norms,
        norm=lambda: float(norms.spectral_upper_bound(weight)),
        is_weight=True,
    )


@register("row_axis", nn.Linear)
def row_axis(_: nn.Module) -> tuple[int, int]:
    """Output units at dim 0."""
    return 0, 1


@register("jvp", nn.Linear, F.linear)
def jvp(
    function: Callable[..., Tensor],
    value: Tensor,
    tangent: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *arguments: object,
    **named: object,
) -> tuple[Tensor, Tensor]:
    """Without the product of the input with the derivative of the weights.

    That derivative is 0, but torch takes the product all the same: a third convolution where two are needed.
    """
    with torch.no_grad():
        moved = function(tangent, weight, None, *arguments, **named)
    return function(value, weight, bias, *arguments, **named), moved


@register("weight_gradient", nn.Linear, "AddmmBackward0")
def addmm_gradient(node: Node, enters: tuple[int, ...]) -> WeightGradient | None:
    """Of bias + x @ weight."""
    if 1 in enters or node._saved_alpha != 1 or node._saved_beta != 1:
        return None
    x = node._saved_mat1 if 2 in enters else None

    def gradients(gradient: Tensor, factors: Tensor) -> WeightGradients:
        scaled = gradient * factors
        # As torch does it: the transpose has the memory layout of the weight.
        weight = None if x is None else (scaled.t() @ x).t()
        return scaled if 0 in enters else None, None, weight

    return gradients


@register("weight_gradient", "MmBackward0")
def mm_gradient(node: Node, enters: tuple[int, ...]) -> WeightGradient | None:
    """Of x @ weight."""
    if 0 in enters:
        return None
    x = node._saved_self
    return lambda gradient, factors: (None, ((gradient * factors).t() @ x).t())
