"""Attacks as elsayed prints them: the gradient of the cross-entropy in the network's own precision, images unclipped.

`attacks.fgsm` and `attacks.ifgsm` take a gradient that is safe from underflow. The plain one is p − 1 for the label and
p for the other classes. In float32 the first is exactly 0 once the label's score is about 17 above the others, and the
step follows the other classes alone: a network of such margins seems robust because its gradient is masked.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from widemargin.attacks.input_range import Bounds
from widemargin.modules import evaluating, scores_of, unwrap_ddp


def plain_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """∇_x of the summed cross-entropy, as autograd rounds it."""
    network = unwrap_ddp(model)
    with evaluating(network), torch.inference_mode(False), torch.enable_grad():
        moved = x.clone().detach().requires_grad_()
        loss = functional.cross_entropy(scores_of(network(moved)), y.long(), reduction="sum")
        (slope,) = torch.autograd.grad(loss, moved)
    return slope


def fgsm(model: nn.Module, x: Tensor, y: Tensor, epsilon: float, *, bounds: Bounds) -> Tensor:
    """x + ε·sign ∇L(x), by the plain gradient."""
    return ifgsm(model, x, y, epsilon, bounds=bounds, steps=1)


def ifgsm(model: nn.Module, x: Tensor, y: Tensor, epsilon: float, *, bounds: Bounds, steps: int = 10) -> Tensor:
    """`steps` steps of ε/steps along the sign of the plain gradient, clipped to within ε of x."""
    low, high = (-math.inf, math.inf) if bounds is None else bounds
    moved = x.detach().clone()
    for _ in range(steps if epsilon else 0):
        step = epsilon / steps * plain_gradient(model, moved, y).sign()
        moved = (moved + step).clamp(x - epsilon, x + epsilon).clamp(low, high)
    return moved
