"""Linear bounds of the values of a network by its inputs, from a step backward (CROWN, Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin import layers, norms
from widemargin.certify.intervals import ROUNDING, Region, divisors, through
from widemargin.layers.forms import Affine, MaxPool, RootMeanSquare, Slopes, Sum
from widemargin.layers.network import Network
from widemargin.layers.trace import INPUT

SLACK = 1e-10
"""Part of |A||x| + |c| + radius·‖A‖_q by which a linear bound is lowered for the rounding of its backward pass, which
is not rounded outward step by step; float64 is a million times finer."""
CURVATURE = 3**-0.5
"""Half of the largest |d²/dt² a·z(c + t·u)| of z = c/s for unit vectors a, u, times √n·s²: see `_root_mean_square`."""


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


def linear_bound(
    network: Network,
    regions: Mapping[int, Region],
    rows: Tensor,
    step: int,
    x: Tensor,
    p: float,
    samples: Tensor | None = None,
) -> LinearBound:
    """A linear lower bound by x of rows·h over l_p balls around `x`, h being the output of step number `step`.

    `regions` are those of the outputs of earlier steps, `rows` `[batch, rows, *shape]` are coefficients of h. At a
    kink, a positive coefficient takes the kink's lower linear bound on its box and a negative one its upper bound. The
    coefficients of a value that several steps take add up. Regions of a ball hold in every smaller ball, and so does
    the linear bound. `samples`, if given, are the samples of `x` and `regions` that `rows` are for.
    """
    batch, many = rows.shape[:2]
    constant, size = rows.new_zeros(batch, many), rows.new_zeros(batch, many)
    relaxations = layers.lookup("relaxation")
    waiting = {step: rows}
    for number in range(step, INPUT, -1):
        coefficients = waiting.pop(number, None)
        if coefficients is None:
            continue
        form, sources = network.steps[number], network.inputs[number]
        around = [regions[source] if samples is None else regions[source].take(samples) for source in sources]
        before, shares = relaxations[type(form)](form, around, coefficients)
        constant, size = constant + shares.sum(dim=2), size + shares.abs().sum(dim=2)
        for source, part in zip(sources, before, strict=True):
            waiting[source] = waiting[source] + part if source in waiting else part
    flat, centre = waiting[INPUT].flatten(2), (x if samples is None else x[samples]).flatten(1)[:, None]
    slope = norms.lp(flat.flatten(0, 1), norms.dual(p)).view(batch, many)
    at_x = flat * centre
    return LinearBound(at_x=at_x.sum(dim=2) + constant, slope=slope, size=size + at_x.abs().sum(dim=2))


@layers.register("relaxation", Affine)
def _affine(step: Affine, _: Sequence[Region], rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Exact: rows·(Wh + b) is (rows·W)h + rows·b."""
    before = step.adjoint(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
    return (before,), rows.new_zeros(*rows.shape[:2], 1) if step.bias is None else (rows * step.bias).flatten(2)


@layers.register("relaxation", Sum)
def _sum(step: Sum, _: Sequence[Region], rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Exact."""
    return tuple(weight * rows for weight in step.weights), rows.new_zeros(*rows.shape[:2], 1)


@layers.register("relaxation", RootMeanSquare)
def _root_mean_square(
    step: RootMeanSquare, regions: Sequence[Region], rows: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The tangent of a·z at the value of x less a bound of its remainder, or the smallest a·z of the box of z.

    With z = c/s, s² = ‖c‖²/n + ε, κ = ‖c‖²/(n·s²) < 1 and unit vectors a, ĉ, u,
    d²/dt² a·z(c + t·u) = −√κ/(√n·s²)·a·v with v = 2(ĉ·u)u + (1 − 3κ(ĉ·u)²)ĉ. κ‖v‖² is a quadratic function of (ĉ·u)²,
    whose largest value is 4/3, at (ĉ·u)² = 1/(3κ). So the remainder is at most ‖a‖·ρ²/(√(3n)·s²), with ρ the largest
    ‖c − c(x)‖ and s the smallest of the group. The tangent is used where it gives the larger bound on a ball of radius
    ρ.
    """
    (region,) = regions
    assert region.tube is not None
    low, high, centre = (step.groups(part) for part in (region.box.lower, region.box.upper, region.tube.centre))
    far = torch.linalg.vector_norm(torch.maximum(high - centre, centre - low), dim=2)
    reach = torch.minimum(far * (1 + ROUNDING), region.tube.radius[:, None])[:, None]  # [batch, 1, groups]
    fewest = divisors(step, region)[0][:, None, :, 0]
    mean_square = centre.square().mean(dim=2)[:, None]
    divisor = (mean_square + step.eps).sqrt()
    a = rows.flatten(2).unflatten(2, (-1, step.size))  # [batch, rows, groups, size]
    along = (a * centre[:, None]).sum(dim=3)
    share = along / (step.size * divisor**3)
    tangent = a / divisor[..., None] - share[..., None] * centre[:, None]
    length = torch.linalg.vector_norm(a, dim=3)
    remainder = CURVATURE * length * reach**2 / (step.size**0.5 * fewest**2)
    height = along / divisor * mean_square / divisor**2 - remainder
    box = through(step, regions).box
    least = a.clamp(min=0) * step.groups(box.lower)[:, None] + a.clamp(max=0) * step.groups(box.upper)[:, None]
    by_box = least.sum(dim=3)
    by_tangent = along / divisor - reach * torch.linalg.vector_norm(tangent, dim=3) - remainder
    is_tangent = by_tangent >= by_box
    before = torch.where(is_tangent[..., None], tangent, torch.zeros_like(tangent))
    return (before.flatten(2).view_as(rows),), torch.where(is_tangent, height, by_box)


@layers.register("relaxation", Slopes)
def _slopes(step: Slopes, regions: Sequence[Region], rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """A chord on one side, a line through the kink on the other: with the slope of the larger part of the box."""
    low, high = regions[0].box.lower, regions[0].box.upper
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
    return (above * side[:, None] + below * chord[:, None],), (below * height[:, None]).flatten(2)


@layers.register("relaxation", MaxPool)
def _pool(step: MaxPool, regions: Sequence[Region], rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """max_j h_j ≥ h_k, k the entry of largest lower bound; ≤ h_k if no other can exceed it, else ≤ max_j upper_j."""
    box = regions[0].box
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
    return (before.view(*flat.shape[:2], *box.lower.shape[1:]),), flat.clamp(max=0) * top
