"""Gradients of the parameters of some layers by the operations that autograd itself calls, without autograd.

The engine of autograd takes longer to start than a convolution takes on a fast GPU. A layer with a rule does not need
its node after the first pass, which may then free the tensors that the node saved: a network of such layers frees as
much memory as the stored gradients take. The rules are in the registry of layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin import layers
from widemargin.layers.convolution import has_channels_last
from widemargin.layers.registry import Node, WeightGradient, WeightGradients

_GRADIENTS, _SUMS = layers.lookup("weight_gradient"), layers.lookup("gradient_sums")


def of_gradient(node: Node, enters: tuple[int, ...]) -> WeightGradient | None:
    """The gradients of the inputs `enters` of `node`, as a function of the gradient that arrives and of its factors.

    The function holds the saved tensors that it needs. None: there is no rule.
    """
    rule = _GRADIENTS.get(node.name())
    return None if rule is None else rule(node, enters)


def saves_nothing(node: Node) -> bool:
    """Whether a node can be called after its saved tensors are freed: sums and concatenations."""
    return node.name() in ("AddBackward0", "SubBackward0", "CatBackward0")


def is_channels_last(node: Node) -> bool:
    """Whether a node is a convolution of images whose channels come last in memory: one that would copy its gradient.

    Where only the kernel has channels last, the pass for the activations needs the gradient as it comes (torch lays it
    out as the input, and then as the kernel), and `of_gradient` copies it for the other one.
    """
    return node.name() == "ConvolutionBackward0" and has_channels_last(node._saved_input)


def has_sums(node: Node, enters: tuple[int, ...]) -> bool:
    """Whether the gradients of the parameters follow from per-sample sums, see `layers.normalization`."""
    return node.name() in _SUMS and 0 not in enters and len(node._input_metadata[0].shape) > 2


def gradient_sums(node: Node, gradient: Tensor) -> Tensor:
    """The per-sample sums `[2, batch, channels]` of the gradient that arrives at `node`."""
    sums: Tensor = _SUMS[node.name()](node, gradient)
    return sums


def group_norms(sums: list[Tensor], weights: Tensor) -> list[WeightGradients]:
    """The gradients of (input, γ, β) of group norms, without the first, from their sums on one batch.

    All layers in one operation: each by itself would take a GPU longer to launch than to compute.
    """
    each = weights.to(sums[0].dtype).view(1, -1, 1)
    both = (torch.cat(sums, dim=2) * each).sum(1)  # no matrix product: those may run as TF32
    return [(None, *part.unbind()) for part in both.split([one.shape[2] for one in sums], dim=1)]
