"""Linear bounds of a network's outputs by its inputs, from the output back to the input (CROWN, Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin import layers, norms
from widemargin.certify.boxes import ROUNDING, Box
from widemargin.geometry.network import Network
from widemargin.layers.forms import Affine, MaxPool, Slopes

SLACK = 1e-10
"""Part of |A||x| + |c| + radius·‖A‖_q by which a linear bound is lowered for the rounding of its backward pass, which
is not rounded outward step by step; float64 is a million times finer."""


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
    """A linear lower bound by x of rows·h, h being the output of step number len(boxes) − 1.

    At a kink, a positive coefficient takes the kink's lower linear bound on its box and a negative one its upper bound.
    Boxes of a ball hold in every smaller ball, and so does the linear bound.

    Args:
        network: the network.
        boxes: boxes of the inputs of the first len(boxes) steps.
        rows: coefficients `[batch, rows, *shape]` of h.
        x: centres of the balls.
        p: their norm.
    """
    batch, many = rows.shape[:2]
    constant, size = rows.new_zeros(batch, many), rows.new_zeros(batch, many)
    relaxations = layers.lookup("relaxation")
    for step, box in zip(reversed(network.steps[: len(boxes)]), reversed(boxes)):
        rows, shares = relaxations[type(step)](step, box, rows)
        constant, size = constant + shares.sum(dim=2), size + shares.abs().sum(dim=2)
    flat, centre = rows.flatten(2), x.flatten(1)[:, None]
    slope = norms.lp(flat.flatten(0, 1), norms.dual(p)).view(batch, many)
    return LinearBound(
        at_x=(flat * centre).sum(dim=2) + constant, slope=slope, size=size + (flat * centre).abs().sum(dim=2)
    )


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
    units = torch.arange(len(step.windows), device=rows.device)
    lows, highs = step.entries(box.lower), step.entries(box.upper)
    best = lows.argmax(dim=2)
    rival = highs.scatter(2, best[:, :, None], -torch.inf).amax(dim=2)
    settled = lows.amax(dim=2) >= rival
    top = torch.where(settled, torch.zeros_like(rival), highs.amax(dim=2))[:, None]
    flat = rows.flatten(2)
    kept = torch.where((flat > 0) | settled[:, None], flat, torch.zeros_like(flat))
    index = step.windows[units, best][:, None].expand_as(flat)
    before = torch.zeros(*flat.shape[:2], box.lower[0].numel(), dtype=flat.dtype, device=flat.device)
    before.scatter_add_(2, index, kept)
    return before.view(*flat.shape[:2], *box.lower.shape[1:]), flat.clamp(max=0) * top
