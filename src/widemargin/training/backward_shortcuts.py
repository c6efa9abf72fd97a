"""The gradients of the parameters of some layers, by the operations that autograd itself would call, without autograd.

The engine of autograd takes longer to start than a convolution takes on a fast GPU. And of a group norm nothing has to
be kept that is as large as an activation: with ds_kc = Σ g_k·x_k and db_kc = Σ g_k over the pixels of channel c of
sample k, taken when the gradient g arrives,

    ∂γ_c = Σ_k c_k·(ds_kc − db_kc·mean_k)/std_k        ∂β_c = Σ_k c_k·db_kc

which is the formula of torch's own kernel, with c_k inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# A node of autograd, whose saved tensors its type does not tell.
Node = Any


def convolution(node: Node, gradient: Tensor, enters: tuple[int, ...]) -> tuple[Tensor | None, ...]:
    """The gradients of (input, weight, bias) of a convolution, of the last two those that `enters` names."""
    found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        gradient,
        node._saved_input,
        node._saved_weight,
        node._saved_bias_sym_sizes_opt,
        node._saved_stride,
        node._saved_padding,
        node._saved_dilation,
        node._saved_transposed,
        node._saved_output_padding,
        node._saved_groups,
        [False, 1 in enters, 2 in enters],
    )
    return found


def is_channels_last(node: Node) -> bool:
    """Whether a node is a convolution of images whose channels come last in memory, and not only by chance."""
    if node.name() != "ConvolutionBackward0":
        return False
    x = node._saved_input
    return x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def has_sums(node: Node, enters: tuple[int, ...]) -> bool:
    """Whether the gradients of the parameters follow from the two sums of `group_norm_sums`."""
    if node.name() != "NativeGroupNormBackward0" or 0 in enters:
        return False
    kind = node._input_metadata[0]
    return len(kind.shape) > 2 and kind.dtype in (torch.float32, torch.float64)


def group_norm_sums(node: Node, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """ds and db of the gradient that arrives at a group norm, `[batch, channels]` each."""
    pixels = list(range(2, gradient.ndim))
    return (gradient * node._saved_input).sum(pixels), gradient.sum(pixels)


def group_norm(node: Node, ds: Tensor, db: Tensor, weights: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of (input, γ, β) of a group norm, without the first, where sample k counts `weights[k]` times."""
    each = weights.to(ds.dtype).view(-1, 1, 1)
    mean, rstd = node._saved_result1, node._saved_result2  # [batch, groups]
    mean, rstd = mean.view(*mean.shape, 1), rstd.view(*rstd.shape, 1)
    ds, db = ds.view(*rstd.shape[:2], -1), db.view(*rstd.shape[:2], -1)
    gamma = (torch.addcmul(ds, db, mean, value=-1) * (rstd * each)).sum(0)
    return None, gamma.view(-1), (db * each).sum(0).view(-1)  # no matrix product: those may run as TF32
