"""Rules of convolutions and transposed convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.grad import conv1d_input, conv2d_input, conv3d_input

from widemargin import norms
from widemargin.layers import linear
from widemargin.layers.forms import Affine, double, per_channel, zeros_like
from widemargin.layers.registry import WeightGradient, WeightGradients, register
from widemargin.types import Node

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_INPUT_GRADIENTS = {3: conv1d_input, 4: conv2d_input, 5: conv3d_input}

register("operator_norm", *CONVOLUTIONS)(norms.spectral_of_layer)
register("row_axis", *CONVOLUTIONS)(linear.row_axis)
register("jvp", *CONVOLUTIONS, torch.conv1d, torch.conv2d, torch.conv3d)(linear.jvp)


@register("affine", *CONVOLUTIONS)
def affine(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Affine:
    """The linear operator on images of the size of `x`."""
    kernel, zeros = double(module.weight), zeros_like(x)
    input_gradient = _INPUT_GRADIENTS[kernel.ndim]

    def convolve(v: Tensor, weight: Tensor) -> Tensor:
        return module._conv_forward(v, weight, None)

    def transposed(rows: Tensor) -> Tensor:
        shape = (len(rows), *zeros.shape[1:])
        return input_gradient(shape, kernel, rows, module.stride, module.padding, module.dilation, module.groups)

    def row_norms(q: float, of: Tensor | None) -> Tensor:
        # A row holds the kernel's entries that fall on the image, each once: their powers add up to a convolution.
        # Entries are divided by the largest of their output channel, and raised to `least` where their power would
        # underflow: rows at the edge of an image may have small entries alone. Such a norm may be too large, as that of
        # q = ∞ there, but never too small, and it is never above the l_1 norm.
        size = (kernel if of is None else of).abs()
        span = torch.finfo(size.dtype)
        l_1 = convolve(torch.ones_like(zeros), size)[0]
        largest = size.flatten(1).amax(dim=1).clamp(min=span.tiny)
        if q == torch.inf:
            return torch.minimum(per_channel(largest, x), l_1)
        least = (span.tiny / span.eps) ** (1 / q)
        ratios = (size / largest.view(-1, *[1] * (size.ndim - 1))).clamp(min=least) * (size > 0)
        sums = convolve(torch.ones_like(zeros), ratios**q)[0].clamp(min=0)
        return torch.minimum(per_channel(largest, x) * sums ** (1 / q), l_1)

    plain = module.padding_mode == "zeros"
    return Affine(
        zeros=zeros,
        linear=lambda v: convolve(v, kernel),
        bias=None if module.bias is None else per_channel(double(module.bias), x),
        absolute=lambda r: convolve(r, kernel.abs()),
        transposed=transposed if plain and not isinstance(module.padding, str) else None,
        row_norms=row_norms if plain else None,
        is_weight=True,
    )


@register("row_axis", nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed_row_axis(module: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d) -> tuple[int, int]:
    """The weight is `[in, out/groups, ...]`: output channels at dim 1, once per group."""
    return 1, module.groups


@register("weight_gradient", *CONVOLUTIONS, "ConvolutionBackward0")
def convolution_gradient(node: Node, enters: tuple[int, ...]) -> WeightGradient | None:
    """Of the kernel and the bias."""
    if 0 in enters:
        return None
    x, weight, bias = node._saved_input, node._saved_weight, node._saved_bias_sym_sizes_opt
    puts_channels_last = has_channels_last(weight)
    how = node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed
    more = node._saved_output_padding, node._saved_groups, [False, 1 in enters, 2 in enters]

    def gradients(gradient: Tensor, factors: Tensor) -> WeightGradients:
        if puts_channels_last:  # together with the product, without a copy of it
            scaled = torch.empty_like(gradient, memory_format=torch.channels_last)
            torch.mul(gradient, factors, out=scaled)
        else:
            scaled = gradient * factors
        result: WeightGradients = torch.ops.aten.convolution_backward(scaled, x, weight, bias, *how, *more)
        return result

    return gradients


def has_channels_last(tensor: Tensor) -> bool:
    """Whether the strides put channels last, also for kernels of one pixel."""
    return tensor.ndim == 4 and tensor.shape[1] > 1 and tensor.stride(1) == 1 and tensor.stride(3) == tensor.shape[1]
