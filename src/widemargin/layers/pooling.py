"""Rules of max-pools and average pools."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.layers.forms import Affine, MaxPool, zeros_like
from widemargin.layers.registry import register

AVERAGE_POOLS = (
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


@register("affine", *AVERAGE_POOLS)
def average(module: nn.Module, x: Tensor) -> Affine:
    """A matrix without negative entries."""
    return Affine(zeros=zeros_like(x), linear=module.forward)


@register("lipschitz", *AVERAGE_POOLS)
def average_lipschitz(module: nn.Module, x: Tensor) -> float:
    """‖A‖_2 ≤ √(largest row sum · largest column sum) of a matrix without negative entries (Schur's test)."""
    with torch.enable_grad():
        ones = torch.ones_like(x, dtype=torch.float64, requires_grad=True)
        rows = module(ones)
        (columns,) = torch.autograd.grad(rows.sum(), ones)
    return math.sqrt(float(rows.detach().max()) * float(columns.max()))


@register("pieces", *MAX_POOLS)
def maximum(module: nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d, x: Tensor) -> MaxPool | None:
    """The windows on images of the size of `x`; None if the pool also returns indices."""
    if module.return_indices:
        return None
    index = torch.arange(x[0].numel(), device=x.device).view(x.shape[1:])
    for axis, size in enumerate(x.shape[2:]):
        kernel, stride, padding, dilation = (
            value[axis] if isinstance(value, Sequence) else value
            for value in (module.kernel_size, module.stride, module.padding, module.dilation)
        )
        span = dilation * (kernel - 1) + 1
        count, rest = divmod(size + 2 * padding - span, stride)
        # As PyTorch counts windows: in ceil_mode the last may reach over the far edge, but not begin in the padding.
        more = stride - rest if module.ceil_mode and rest and (count + 1) * stride < size + padding else 0
        padded = F.pad(index.movedim(1 + axis, -1), (padding, padding + more), value=-1)
        index = padded.movedim(-1, 1 + axis).unfold(1 + axis, span, stride)[..., ::dilation]
    return MaxPool(windows=index.flatten(x.ndim - 1).flatten(0, -2), shape=index.shape[: x.ndim - 1])
