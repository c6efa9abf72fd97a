"""Rules of max-pools and average pools."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

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
    channels, *sizes = x.shape[1:]
    index = torch.zeros(channels, *[1] * (2 * len(sizes)), dtype=torch.long, device=x.device)
    index += math.prod(sizes) * torch.arange(channels, device=x.device).view(index.shape)
    outside = torch.zeros_like(index, dtype=torch.bool)
    for axis, size in enumerate(sizes):
        positions = _positions(module, axis, size).to(x.device)  # [outputs, kernel]
        shape = [1] * index.ndim
        shape[1 + axis], shape[1 + len(sizes) + axis] = positions.shape
        positions = positions.view(shape)
        index = index + math.prod(sizes[axis + 1 :]) * positions
        outside = outside | (positions < 0)
    windows = torch.where(outside, -1, index)
    return MaxPool(windows=windows.flatten(-len(sizes)).flatten(0, -2), shape=windows.shape[: 1 + len(sizes)])


def _positions(module: nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d, axis: int, size: int) -> Tensor:
    """Along one side of length `size`: the entries `[windows, kernel]` of every window, −1 outside the image."""
    kernel, stride, padding, dilation = (
        value[axis] if isinstance(value, Sequence) else value
        for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    # As PyTorch counts windows: in ceil_mode the last may reach over the far edge, but not begin in the padding.
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    count = free // stride + 1
    if module.ceil_mode and free % stride and count * stride < size + padding:
        count += 1
    positions = stride * torch.arange(count)[:, None] + dilation * torch.arange(kernel) - padding
    return torch.where((positions < 0) | (positions >= size), -1, positions)
