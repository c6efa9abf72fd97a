"""The gradients of the parameters of some layers, by the operations that autograd itself would call, without autograd.

The engine of autograd takes longer to start than a convolution takes on a fast GPU. And a layer that is taken care of
here needs its node no more once the first pass is behind it, so that this pass may let go of what the node has saved:
of a network of such layers as much memory is free by then as the gradients take that are kept.

Of a group norm nothing has to be kept that is as large as an activation, but two sums over the pixels of every channel
c of every sample k, taken when the gradient g arrives (the formula of torch's own kernel, before it adds up samples):

    ∂γ_c = Σ_k c_k·γ_kc        γ_kc = (Σ g·x − mean·Σ g)/std        ∂β_c = Σ_k c_k·β_kc        β_kc = Σ g
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from widemargin._cuda import runtime
from widemargin.types import wide

# A node of autograd, whose saved tensors its type does not tell.
Node = Any
Answers: TypeAlias = tuple[Tensor | None, ...]
"""The gradients of the inputs of a node, in their order."""

OfGradient: TypeAlias = Callable[[Tensor, Tensor], Answers]


def of_gradient(node: Node, enters: tuple[int, ...]) -> OfGradient | None:
    """What gives the answers of `node` that `enters` names, of the gradient that arrives and the factors of its parts.

    What it needs of the node it takes now. None: no shortcut is known.
    """
    name = node.name()
    if name == "ConvolutionBackward0" and 0 not in enters:
        return _convolution(node, enters)
    if name == "AddmmBackward0" and 1 not in enters and node._saved_alpha == 1 and node._saved_beta == 1:
        return _addmm(node, enters)
    if name == "MmBackward0" and 0 not in enters:
        return _mm(node)
    if name == "NativeLayerNormBackward0" and 0 not in enters:
        return _layer_norm(node, enters)
    return None


def saves_nothing(node: Node) -> bool:
    """Whether a node can be called after it has let go of what it saved: sums and pieces put together."""
    return node.name() in ("AddBackward0", "SubBackward0", "CatBackward0")


def _convolution(node: Node, enters: tuple[int, ...]) -> OfGradient:
    x, weight, bias = node._saved_input, node._saved_weight, node._saved_bias_sym_sizes_opt
    puts_channels_last = _has_channels_last(weight)
    how = node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed
    more = node._saved_output_padding, node._saved_groups, [False, 1 in enters, 2 in enters]

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        if puts_channels_last:  # at once with the product, and not by a copy of it
            scaled = torch.empty_like(gradient, memory_format=torch.channels_last)
            torch.mul(gradient, factors, out=scaled)
        else:
            scaled = gradient * factors
        found: Answers = torch.ops.aten.convolution_backward(scaled, x, weight, bias, *how, *more)
        return found

    return answers


def _addmm(node: Node, enters: tuple[int, ...]) -> OfGradient:
    """Of bias + x @ weight."""
    x = node._saved_mat1 if 2 in enters else None

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        scaled = gradient * factors
        weight = None
        if x is not None:  # as torch does it: the transpose is laid out as the weight is
            weight = (scaled.t() @ x).t()
        return scaled if 0 in enters else None, None, weight

    return answers


def _mm(node: Node) -> OfGradient:
    """Of x @ weight."""
    x = node._saved_self

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        return None, ((gradient * factors).t() @ x).t()

    return answers


def _layer_norm(node: Node, enters: tuple[int, ...]) -> OfGradient:
    saved = node._saved_input, node._saved_normalized_shape, node._saved_result1, node._saved_result2
    affine = node._saved_weight, node._saved_bias

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        found: Answers = torch.ops.aten.native_layer_norm_backward(
            gradient * factors, *saved, *affine, [False, 1 in enters, 2 in enters]
        )
        return found

    return answers


def is_channels_last(node: Node) -> bool:
    """Whether a node is a convolution of images whose channels come last in memory: one that would copy its gradient.

    Where only the kernel's do, the pass for the activations wants the gradient as it comes (torch lays it out as the
    input, and then as the kernel), and `of_gradient` takes care of the other one.
    """
    return node.name() == "ConvolutionBackward0" and _has_channels_last(node._saved_input)


def _has_channels_last(tensor: Tensor) -> bool:
    """By its strides, which tell it also of kernels of one pixel."""
    return tensor.ndim == 4 and tensor.shape[1] > 1 and tensor.stride(1) == 1 and tensor.stride(3) == tensor.shape[1]


def has_sums(node: Node, enters: tuple[int, ...]) -> bool:
    """Whether the gradients of the parameters follow from the two sums of `group_norm_sums`."""
    if node.name() != "NativeGroupNormBackward0" or 0 in enters:
        return False
    return len(node._input_metadata[0].shape) > 2


def group_norm_sums(node: Node, gradient: Tensor) -> Tensor:
    """(γ_kc, β_kc) of the gradient that arrives at a group norm, `[2, batch, channels]`, never in half precision.

    torch's own kernel is no choice: of images with their channels last on a CPU it crashes where nobody asks it for the
    gradient of the images (torch 2.13).
    """
    x, mean, rstd = node._saved_input, node._saved_result1, node._saved_result2  # the last two [batch, groups]
    gradient, x, mean, rstd = (wide(tensor) for tensor in (gradient, x, mean, rstd))
    if _is_for_kernel(gradient, x):
        from widemargin._cuda import group_norm_kernel

        return group_norm_kernel.sums(gradient, x, mean, rstd)
    pixels = list(range(2, gradient.ndim))
    beta = gradient.sum(pixels)
    by_group = (*mean.shape, -1)
    gamma = (gradient * x).sum(pixels).view(by_group) - beta.view(by_group) * mean.unsqueeze(2)
    return torch.stack([(gamma * rstd.unsqueeze(2)).view_as(beta), beta])


def group_norms(sums: list[Tensor], weights: Tensor) -> list[Answers]:
    """The gradients of (input, γ, β) of group norms, without the first, of their `group_norm_sums` on one batch.

    Of all of them at once: each by itself would take a GPU longer to launch than to compute.
    """
    each = weights.to(sums[0].dtype).view(1, -1, 1)
    both = (torch.cat(sums, dim=2) * each).sum(1)  # no matrix product: those may run as TF32
    return [(None, *part.unbind()) for part in both.split([one.shape[2] for one in sums], dim=1)]


def _is_for_kernel(gradient: Tensor, x: Tensor) -> bool:
    return (
        gradient.is_cuda
        and gradient.dtype == x.dtype == torch.float32
        and gradient.is_contiguous()
        and x.is_contiguous()
        and runtime.has_triton()
    )
