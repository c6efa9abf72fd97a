"""The gradient that attacks follow."""

from __future__ import annotations

import torch
from torch import nn

from widemargin.attacks.input_range import Inputs
from widemargin.checks import check_finite, check_scores_and_labels
from widemargin.modules import evaluating, scores_of, unwrap_ddp
from widemargin.types import Labels, PerExample, Scores, is_binary, wide


def gradient(model: nn.Module, x: Inputs, y: Labels) -> Inputs:
    """∇_x of `excess`, which has for every sample the direction of the gradient of its cross-entropy.

    Attacks use the direction alone: its sign or its unit vector. The cross-entropy is softplus(excess), so its gradient
    is a positive multiple of this one. That multiple is the probability of being wrong, which rounds to 0 for a
    confident network: such a network would seem robust only because its gradient vanishes in floating point.
    """
    network = unwrap_ddp(model)
    with evaluating(network), torch.inference_mode(False), torch.enable_grad():
        moved = x.clone().detach().requires_grad_()
        (slope,) = torch.autograd.grad(excess(scores_of(network(moved)), y).sum(), moved)
    return slope


def excess(scores: Scores, y: Labels) -> PerExample:
    """log Σ_{j≠y} exp f_j − f_y, or −f·y for a binary network with labels ±1."""
    check_scores_and_labels(scores, y)
    check_finite(scores, "scores")
    f = wide(scores)
    if is_binary(f):
        return -f.reshape(-1) * y.to(f.dtype)
    label = y[:, None].long()
    return f.scatter(1, label, -torch.inf).logsumexp(dim=1) - f.gather(1, label).squeeze(1)
