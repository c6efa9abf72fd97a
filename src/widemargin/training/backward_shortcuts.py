"""The gradients of the parameters of some layers, by the operations that autograd itself would call, without autograd.

Two reasons. The engine of autograd takes longer to start than these layers take on a fast GPU. And a group norm has no
need of its gradient times c_k, an activation that would be written and read again: with ds_kc = Σ g_k·x_k and
db_kc = Σ g_k over the pixels of channel c of sample k,

    ∂γ_c = Σ_k c_k·(ds_kc − db_kc·mean_k)/std_k        ∂β_c = Σ_k c_k·db_kc

which is the formula of torch's own kernel, with c_k inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# A node of autograd, whose saved tensors its type does not tell.
Node = Any


def convolution(node: Node, gradient: Tensor, enters: tuple[int, ...]) -> tuple[Tensor | None, ...] | None:
    """The gradients of (input, weight, bias) of a convolution, of those that `enters` names; None: not this way."""
    if 0 in enters:
        return None
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


def group_norm(
    node: Node, gradient: Tensor, weights: Tensor, enters: tuple[int, ...]
) -> tuple[Tensor | None, ...] | None:
    """The gradients of (input, γ, β) of a group norm, where sample k counts `weights[k]` times; None: not this way."""
    x = node._saved_input
    if 0 in enters or x.dtype not in (torch.float32, torch.float64) or x.ndim < 3:
        return None
    pixels = list(range(2, x.ndim))
    each = weights.to(gradient.dtype)[:, None]
    db = gradient.sum(pixels)
    beta = (db * each).sum(0) if 2 in enters else None  # no matrix product: those may run as TF32
    if 1 not in enters:
        return None, None, beta
    mean, rstd = node._saved_result1, node._saved_result2 * each
    ds, db = (sums.unflatten(1, (rstd.shape[1], -1)) for sums in ((gradient * x).sum(pixels), db))
    gamma = ((ds - db * mean[..., None]) * rstd[..., None]).sum(0).flatten()
    return None, gamma, beta
