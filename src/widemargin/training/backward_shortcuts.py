"""The gradients of the parameters of some layers, by the operations that autograd itself would call, without autograd.

The engine of autograd takes longer to start than a convolution takes on a fast GPU. And a layer that is taken care of
here needs its node no more once the first pass is behind it, so that this pass may let go of what the node has saved:
of a network of such layers as much memory is free by then as the gradients take that are kept.

Of a group norm nothing has to be kept that is as large as an activation: with ds_kc = Σ g_k·x_k and db_kc = Σ g_k over
the pixels of channel c of sample k, taken when the gradient g arrives,

    ∂γ_c = Σ_k c_k·(ds_kc − db_kc·mean_k)/std_k        ∂β_c = Σ_k c_k·db_kc

which is the formula of torch's own kernel, with c_k inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from widemargin import norms

# A node of autograd, whose saved tensors its type does not tell.
Node = Any
Answers: TypeAlias = tuple[Tensor | None, ...]
"""The gradients of the inputs of a node, in their order."""

OfGradient: TypeAlias = Callable[[Tensor], Answers]
OfSums: TypeAlias = Callable[[Tensor, Tensor, Tensor], Answers]


def of_gradient(node: Node, enters: tuple[int, ...]) -> OfGradient | None:
    """What gives the answers of `node` that `enters` names, of the gradient that arrives; None: no shortcut is known.

    What it needs of the node it takes now.
    """
    name = node.name()
    if name == "ConvolutionBackward0" and 0 not in enters:
        return _convolution(node, enters)
    if name == "AddmmBackward0" and 1 not in enters and node._saved_alpha == 1 and node._saved_beta == 1:
        return _addmm(node, enters)
    return None


def _convolution(node: Node, enters: tuple[int, ...]) -> OfGradient:
    x, weight, bias = node._saved_input, node._saved_weight, node._saved_bias_sym_sizes_opt
    how = node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed
    more = node._saved_output_padding, node._saved_groups, [False, 1 in enters, 2 in enters]

    def answers(gradient: Tensor) -> Answers:
        found: Answers = torch.ops.aten.convolution_backward(gradient, x, weight, bias, *how, *more)
        return found

    return answers


def _addmm(node: Node, enters: tuple[int, ...]) -> OfGradient:
    """Of bias + x @ weight."""
    x = node._saved_mat1 if 2 in enters else None

    def answers(gradient: Tensor) -> Answers:
        weight = None
        if x is not None:  # as torch does it: the transpose is laid out as the weight is
            weight = (gradient.t() @ x).t()
        return gradient if 0 in enters else None, None, weight

    return answers


def is_channels_last(node: Node) -> bool:
    """Whether a node is a convolution of images that puts channels last in memory: one that would copy its gradient."""
    return node.name() == "ConvolutionBackward0" and any(
        map(_has_channels_last, (node._saved_input, node._saved_weight))
    )


def _has_channels_last(tensor: Tensor) -> bool:
    """By its strides, which tell it also of kernels of one pixel."""
    return tensor.ndim == 4 and tensor.shape[1] > 1 and tensor.stride(1) == 1 and tensor.stride(3) == tensor.shape[1]


def has_sums(node: Node, enters: tuple[int, ...]) -> bool:
    """Whether the gradients of the parameters follow from the two sums of `group_norm_sums`."""
    if node.name() != "NativeGroupNormBackward0" or 0 in enters:
        return False
    kind = node._input_metadata[0]
    return len(kind.shape) > 2 and kind.dtype in (torch.float32, torch.float64)


def group_norm_sums(node: Node, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """ds and db of the gradient that arrives at a group norm, `[batch, channels]` each."""
    x = node._saved_input
    if _is_for_kernel(gradient, x):
        from widemargin.training import backward_kernels

        return backward_kernels.sums(gradient, x)
    pixels = list(range(2, gradient.ndim))
    return (gradient * x).sum(pixels), gradient.sum(pixels)


def of_sums(node: Node) -> OfSums:
    """What gives the answers of a group norm of (ds, db, weights), where sample k counts `weights[k]` times."""
    mean, rstd = node._saved_result1, node._saved_result2  # [batch, groups]
    mean, rstd = mean.view(*mean.shape, 1), rstd.view(*rstd.shape, 1)

    def answers(ds: Tensor, db: Tensor, weights: Tensor) -> Answers:
        each = weights.to(ds.dtype).view(-1, 1, 1)
        ds, db = ds.view(*rstd.shape[:2], -1), db.view(*rstd.shape[:2], -1)
        gamma = (torch.addcmul(ds, db, mean, value=-1) * (rstd * each)).sum(0)
        return None, gamma.view(-1), (db * each).sum(0).view(-1)  # no matrix product: those may run as TF32

    return answers


def _is_for_kernel(gradient: Tensor, x: Tensor) -> bool:
    return (
        gradient.is_cuda
        and gradient.dtype == x.dtype == torch.float32
        and gradient.is_contiguous()
        and x.is_contiguous()
        and norms.has_triton()
    )
