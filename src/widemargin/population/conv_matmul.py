"""Convolutions of many networks as batched matrix products.

`vmap` turns the convolutions of a stack into one grouped convolution, which GPUs do slowly. Here every network's
patches are copied into a matrix (im2col), and one batched product serves all networks, forward and backward:

    out[k] [batch·h·w, out] = patches[k] [batch·h·w, kernel·kernel·in] @ weight[k]ᵀ

Images lie in memory with their channels last, so that a patch is `kernel` runs of kernel·in numbers and the copy moves
whole runs. It takes kernel² times the memory of the input of each layer. On GPUs `conv_kernels` does the same without
the copies, for strides of 1, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import layers
from widemargin._cuda import has_triton
from widemargin.population.layers import on_stacked

Convolutions: TypeAlias = Literal["grouped", "matmul", "fused"]
CONVOLUTIONS: tuple[Convolutions, ...] = ("grouped", "matmul", "fused")


def convolve(
    x: Float[Tensor, "networks batch inputs height width"],
    weight: Float[Tensor, "networks outputs inputs kernel_height kernel_width"],
    bias: Float[Tensor, "networks outputs"] | None,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    fused: bool = False,
) -> Float[Tensor, "networks batch outputs new_height new_width"]:
    """`F.conv2d` of every network, with zeros around the images; `fused` by `conv_kernels` where they support it."""
    networks, batch = x.shape[:2]
    rows, columns = weight.shape[-2:]
    last = x.movedim(2, 4)
    if fused and tuple(stride) == (1, 1) and padding[0] < rows and padding[1] < columns:
        from widemargin.population import conv_kernels

        turned = weight.permute(0, 1, 3, 4, 2)
        if conv_kernels.can_convolve(last, turned):
            return conv_kernels.convolve(last, turned, bias, (padding[0], padding[1])).movedim(4, 2)
    last = F.pad(last, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    patches = last.unfold(2, rows, stride[0]).unfold(3, columns, stride[1])  # [networks, batch, h, w, in, r, c]
    height, width = patches.shape[2:4]
    matrix = patches.permute(0, 1, 2, 3, 5, 6, 4).reshape(networks, batch * height * width, -1)
    kernel = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
    out = matrix.bmm(kernel) if bias is None else bias[:, None].baddbmm(matrix, kernel)
    return out.view(networks, batch, height, width, -1).movedim(4, 2)


@layers.register("stacked", nn.Conv2d)
def stacked_convolution(layer: nn.Conv2d, form: str) -> Callable[[Tensor], Tensor] | None:
    """The forward pass of a plain convolution inside `vmap`, by matrix products; None if it stays grouped."""
    if form == "grouped" or not is_plain(layer):
        return None

    def forward(x: Tensor) -> Tensor:
        if x.ndim != 4:
            return F.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding)
        assert not isinstance(layer.padding, str)
        function = partial(convolve, stride=layer.stride, padding=layer.padding, fused=form == "fused")
        return on_stacked(function, x, layer.weight, layer.bias)

    return forward


@layers.register("stacked", nn.MaxPool2d)
def stacked_max_pool(layer: nn.MaxPool2d, form: str) -> Callable[[Tensor], Tensor] | None:
    """The forward pass of a 2×2 pool inside `vmap`, by a kernel beside fused convolutions."""
    if form != "fused" or not halves(layer):
        return None
    return lambda x: on_stacked(pooled, x) if x.ndim == 4 else F.max_pool2d(x, 2)


def is_plain(layer: nn.Conv2d) -> bool:
    """Whether `convolve` supports the layer: no groups, no dilation, zero padding."""
    return (
        layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def halves(layer: nn.MaxPool2d) -> bool:
    """Whether the layer is a plain 2×2 max pool of stride 2."""
    pairs = [value if isinstance(value, tuple) else (value, value) for value in (layer.kernel_size, layer.stride)]
    plain = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
    return pairs == [(2, 2), (2, 2)] and plain and not (layer.return_indices or layer.ceil_mode)


def pooled(
    x: Float[Tensor, "networks batch channels height width"],
) -> Float[Tensor, "networks batch channels new_height new_width"]:
    """`F.max_pool2d(…, 2)` of every network, by `conv_kernels` where they support it."""
    last = x.movedim(2, 4).flatten(0, 1)
    if x.dtype == torch.float32 and last.is_contiguous() and min(x.shape[-2:]) > 1:
        from widemargin.population import conv_kernels

        out = conv_kernels.pool(last).movedim(3, 1)
    else:
        out = F.max_pool2d(x.flatten(0, 1), 2)
    return out.unflatten(0, x.shape[:2])


def forms(network: nn.Module, device: torch.device) -> tuple[Convolutions, ...]:
    """The forms that convolutions of `network` can have on `device`."""
    known = [m for m in network.modules() if layers.rule("stacked", m) is stacked_convolution]
    plain = [m for m in known if isinstance(m, nn.Conv2d) and is_plain(m)]
    if not plain:
        return ("grouped",)
    if why_not_fused(device) is None and any(m.stride == (1, 1) and m.weight.dtype == torch.float32 for m in plain):
        return CONVOLUTIONS
    return ("grouped", "matmul")


def why_not_fused(device: torch.device) -> str | None:
    """Why convolutions can't be fused there, or None where they can be."""
    if device.type != "cuda":
        return f"the networks are trained on {device}, and its kernels need CUDA"
    return None if has_triton() else "Triton, in which its kernels are written, is not installed (pip install triton)"
