"""Intervals of the entries of a network's layers for inputs in a ball (IBP, Gowal et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin.layers.forms import Affine, Form, MaxPool

ROUNDING = 1e-12
"""Intervals are widened by this part of the sum of the absolute values of their terms: float64 sums of n terms have an
error of at most n·1.2e-16 of it, which covers rows of up to 8000 terms."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """lower ≤ h ≤ upper, `[batch, *shape]` each."""

    lower: Tensor
    upper: Tensor

    def meet(self, other: Box) -> Box:
        """The intersection."""
        return Box(lower=torch.maximum(self.lower, other.lower), upper=torch.minimum(self.upper, other.upper))


@dataclass(frozen=True, kw_only=True, eq=False)
class Ball:
    """‖h − centre‖_p ≤ radius, `radius` per sample; q is dual to p."""

    centre: Tensor
    radius: Tensor
    q: float


def l2_ball(x: Tensor, radius: Tensor, p: float) -> Ball:
    """The l_2 ball around the inputs' l_p ball."""
    larger = x[0].numel() ** (0.5 - 1 / p) if p > 2 else 1.0
    return Ball(centre=x, radius=radius * larger * (1 + ROUNDING), q=2.0)


def ball_through(step: Form, ball: Ball, lipschitz: float) -> Ball:
    """An l_2 ball of the outputs; operator norms, which Lanczos iteration approaches from below, are raised."""
    slack = 1e-6 if isinstance(step, Affine) and not step.moves else 0.0
    return Ball(centre=step.forward(ball.centre), radius=ball.radius * lipschitz * (1 + slack), q=2.0)


def through(step: Form, region: Ball | Box) -> Ball | Box:
    """A region of the outputs of `step` for inputs in `region`.

    A ball stays a ball up to the first layer with weights, whose interval is exact: (Wx + b)_i ± radius·‖W_i‖_q.
    """
    if isinstance(region, Ball):
        if isinstance(step, Affine) and step.moves:
            return Ball(centre=step.forward(region.centre), radius=region.radius, q=region.q)
        if isinstance(step, Affine) and step.row_norms is not None:
            rows = step.row_norms(region.q, None) * (1 + ROUNDING)
            spread = region.radius.view(-1, *[1] * rows.ndim) * rows
            return _around(step, region.centre, spread + ROUNDING * step.magnitude(region.centre.abs()))
        region = box_of(region)
    if isinstance(step, Affine):
        middle, half = (region.upper + region.lower) / 2, (region.upper - region.lower) / 2
        return _around(step, middle, step.magnitude(half + ROUNDING * (middle.abs() + half)))
    if isinstance(step, MaxPool):
        return Box(lower=step.forward(region.lower), upper=step.forward(region.upper))
    ends = step.forward(region.lower), step.forward(region.upper)
    least, most = torch.minimum(*ends), torch.maximum(*ends)
    across = (region.lower < 0) & (region.upper > 0)  # a kink may be lower or higher than both ends
    return Box(lower=torch.where(across, least.clamp(max=0), least), upper=torch.where(across, most.clamp(min=0), most))


def box_of(region: Ball | Box) -> Box:
    """The smallest box around `region`: for an l_p ball of any p, centre ± radius."""
    if isinstance(region, Box):
        return region
    reach = region.radius.view(-1, *[1] * (region.centre.ndim - 1)) * (1 + ROUNDING)
    slack = ROUNDING * region.centre.abs()
    return Box(lower=region.centre - reach - slack, upper=region.centre + reach + slack)


def _around(step: Affine, middle: Tensor, spread: Tensor) -> Box:
    centre = step.forward(middle)
    if step.bias is not None:
        spread = spread + ROUNDING * step.bias.abs()
    return Box(lower=centre - spread, upper=centre + spread)
