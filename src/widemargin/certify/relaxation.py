"""Relaxations of a network on a ball of inputs.

Intervals of the entries of its layers, from the input forward (IBP, Gowal et al. 2018), and linear bounds of its
outputs by its inputs, from the output backward (CROWN, Zhang et al. 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin import layers, norms
from widemargin.geometry.network import Network
from widemargin.layers.forms import Affine, Form, MaxPool, Slopes

ROUNDING = 1e-12
"""Intervals are widened by this part of the sum of the absolute values of their terms: float64 sums of n terms have an
error of at most n·1.2e-16 of it, which covers rows of up to 8000 terms."""
SLACK = 1e-10
"""Part of |A||x| + |c| + radius·‖A‖_q by which a linear bound is lowered for the rounding of its backward pass, which
is not rounded outward step by step; float64 is a million times finer."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBound:
    """value(x′) ≥ at_x − slope·‖x′ − x‖_p for every x′ in the ball, `[batch, rows]` each.

    `at_x` is the linear bound A·x + c at the centre, `slope` is ‖A‖_q, `size` the scale of the rounding.
    """

    at_x: Tensor
    slope: Tensor
    size: Tensor

    def least(self, radius: Tensor) -> Tensor:
        """The bound over the ball of `radius` (per sample)."""
        spread = radius[:, None] * self.slope
        return self.at_x - spread - SLACK * (self.size + spread)

    def reach(self, radius: Tensor) -> Tensor:
        """The largest radius up to `radius` for which the bound is positive; 0 if there is none."""
        height = (self.at_x - SLACK * self.size).clamp(min=0)
        slope = self.slope * (1 + SLACK)
        most = radius[:, None].expand_as(height)
        return torch.where(height > slope * most, most, height / slope.clamp(min=torch.finfo(height.dtype).tiny))


def linear_bound(network: Network, boxes: Sequence[Box], rows: Tensor, x: Tensor, p: float) -> LinearBound:
    """A linear lower bound by x of rows·h over l_p balls around `x`, h being the output of step number len(boxes) − 1.

    `boxes` are of the inputs of the steps, `rows` `[batch, rows, *shape]` are coefficients of h. At a kink, a positive
    coefficient takes the kink's lower linear bound on its box and a negative one its upper bound. Boxes of a ball hold
    in every smaller ball, and so does the linear bound.
    """
    batch, many = rows.shape[:2]
    constant, size = rows.new_zeros(batch, many), rows.new_zeros(batch, many)
    relaxations = layers.lookup("relaxation")
    for step, box in zip(reversed(network.steps[: len(boxes)]), reversed(boxes)):
        rows, shares = relaxations[type(step)](step, box, rows)
        constant, size = constant + shares.sum(dim=2), size + shares.abs().sum(dim=2)
    flat, centre = rows.flatten(2), x.flatten(1)[:, None]
    slope = norms.lp(flat.flatten(0, 1), norms.dual(p)).view(batch, many)
    at_x = flat * centre
    return LinearBound(at_x=at_x.sum(dim=2) + constant, slope=slope, size=size + at_x.abs().sum(dim=2))


@layers.register("relaxation", Affine)
def _affine(step: Affine, _: Box, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Exact: rows·(Wh + b) is (rows·W)h + rows·b."""
    before = step.adjoint(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
    return before, rows.new_zeros(*rows.shape[:2], 1) if step.bias is None else (rows * step.bias).flatten(2)


@layers.register("relaxation", Slopes)
def _slopes(step: Slopes, box: Box, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A chord on one side, a line through the kink on the other: with the slope of the larger part of the box."""
    low, high = box.lower, box.upper
    across = (low < 0) & (high > 0)
    width = torch.where(across, high - low, torch.ones_like(high))
    chord = (step.positive * high - step.negative * low) / width
    # Chord and kink meet at both ends; the height is widened a little for the rounding of the chord.
    height = (step.positive - chord) * high
    convex = step.positive >= step.negative
    height = height + ROUNDING * (abs(step.positive) + abs(step.negative)) * (high - low) * (1 if convex else -1)
    right, left = high.new_tensor(step.positive), high.new_tensor(step.negative)  # not floats: float32
    side, straight = torch.where(high > -low, right, left), torch.where(low >= 0, right, left)
    chord, side = torch.where(across, chord, straight), torch.where(across, side, straight)
    height = torch.where(across, height, torch.zeros_like(height))
    above, below = rows.clamp(min=0), rows.clamp(max=0)
    if not convex:
        above, below = below, above
    return above * side[:, None] + below * chord[:, None], (below * height[:, None]).flatten(2)


@layers.register("relaxation", MaxPool)
def _pool(step: MaxPool, box: Box, rows: Tensor) -> tuple[Tensor, Tensor]:
    """max_j h_j ≥ h_k, k the entry of largest lower bound; ≤ h_k if no other can exceed it, else ≤ max_j upper_j."""
    lows, highs = step.entries(box.lower), step.entries(box.upper)
    best = lows.argmax(dim=2)
    rival = highs.scatter(2, best[:, :, None], -torch.inf).amax(dim=2)
    settled = lows.amax(dim=2) >= rival
    top = torch.where(settled, torch.zeros_like(rival), highs.amax(dim=2))[:, None]
    flat = rows.flatten(2)
    kept = torch.where((flat > 0) | settled[:, None], flat, torch.zeros_like(flat))
    index = step.windows.expand(len(best), -1, -1).gather(2, best[:, :, None]).mT.expand_as(flat)
    before = torch.zeros(*flat.shape[:2], box.lower[0].numel(), dtype=flat.dtype, device=flat.device)
    before.scatter_add_(2, index, kept)
    return before.view(*flat.shape[:2], *box.lower.shape[1:]), flat.clamp(max=0) * top
