"""The scale-free form of margin losses, which trains wherever cross-entropy trains.

As printed, with the denominator a constant for the gradient, a margin loss has two faults. (a) Its gradient at the
scores is 1/‖∇f‖ long, about 50 for a fresh MNIST network: cross-entropy's learning rates are 50 times too large for
it. (b) The true margin (f_y − f_i)/‖∇(f_y − f_i)‖ does not change when all scores are scaled, but its gradient with a
constant denominator has a component along the scale. Where γ is out of reach that component never vanishes, and the
scores grow until the network diverges.

With d = f_y − f_i, s² the mean of d² of the strongest class (or of the chosen one) over the batch, n the denominators
at one place, and a bar for "constant in the gradient":

    d ← d·(s̄/s)                        (b) the same value; the gradient no longer moves the scale of the scores
    n ← max(n, 0.1·median n)                no single flat sample dominates the gradient
    loss ← loss·H/(√2·max(1, s̄)·places) (a) H the harmonic mean of n: the gradient at the scores is about 1 long

and, for the band, times r − θ, so that its slope is 1 as the hinge's is. Means and medians are over the joint batch of
all processes. √2 is the length of e_y − e_i, of which the gradient at the scores stays a multiple, sample by sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from widemargin._autograd import distributed_stats

SMALLEST_BATCH = 8
"""With fewer samples d is unchanged: the projection takes 1/n of the gradient away, all of it where n = 1."""

WithoutScale: TypeAlias = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]

FLOOR = 0.1
TINY = 1e-6


def without_scale(difference: Tensor, leading: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`difference` [batch, others], with a gradient that does not change the scale of the scores; and s̄.

    s is that of the first column, or of `leading` [batch, 1].
    """
    if distributed_stats.processes() > 1 or leading is not None or len(difference) < SMALLEST_BATCH:
        return composed(difference, leading)
    s = _root_mean_square(difference[:, 0]).detach()
    return _WithoutScale.apply(difference, s), s


def composed(difference: Tensor, leading: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`without_scale` by operations of torch alone, in any number of processes and inside `torch.func.vmap`."""
    s = _root_mean_square((difference if leading is None else leading)[:, 0])
    if distributed_stats.count(difference) < SMALLEST_BATCH:
        return difference, s.detach()
    return difference * (s.detach() / s), s.detach()


def _root_mean_square(values: Tensor) -> Tensor:
    return (distributed_stats.mean(values.square()) + TINY**2).sqrt()  # a zero-initialised last layer has s = 0


class _WithoutScale(torch.autograd.Function):
    """d·(s̄/s) of one process, with few operations, since a GPU waits for the launch of each of them."""

    @staticmethod
    def forward(ctx: FunctionCtx, difference: Tensor, s: Tensor) -> Tensor:
        ctx.save_for_backward(difference, s)
        return difference.view_as(difference)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (gradient,) = grads
        difference, s = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, in which s̄ is a constant and s is not
            s_with_graph = (difference[:, 0].square().mean() + TINY**2).sqrt()
            value = difference * (s / s_with_graph)
            (answer,) = torch.autograd.grad(value, difference, gradient, create_graph=True)
            return answer, None
        along = (gradient * difference).sum() / (len(difference) * s * s)
        if difference.shape[1] == 1:
            return torch.addcmul(gradient, difference, along, value=-1), None
        answer = gradient.clone()
        answer[:, 0].addcmul_(difference[:, 0], along, value=-1)
        return answer, None


def floored(slopes: Tensor) -> tuple[Tensor, Tensor]:
    """The denominators `[places, batch, others]` with their floors, and their harmonic mean H at each place."""
    everyone = slopes.detach().flatten(1)
    if distributed_stats.processes() > 1:
        everyone = torch.stack([distributed_stats.gather(row) for row in everyone])
    floor = (FLOOR * everyone.median(dim=1).values).clamp_min(TINY)
    harmonic = everyone.clamp_min(floor[:, None]).reciprocal().mean(dim=1).reciprocal()
    return torch.maximum(slopes, floor[:, None, None]), harmonic


def unit(harmonic: Tensor, scale: Tensor, places: int) -> Tensor:
    """The factor that makes a loss of slope 1 in the margin have a gradient of about unit length at the scores."""
    return harmonic / (math.sqrt(2) * scale.clamp_min(1.0) * places)
