"""Regions of the values inside a network on balls of inputs, from the input forward.

Intervals of the entries (IBP, Gowal et al. 2018), and l_2 balls by Lipschitz constants (as Lee et al. 2020 do).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from widemargin import norms
from widemargin.layers.forms import Affine, MaxPool, RootMeanSquare, Slopes, Step, Sum

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

    def box(self) -> Box:
        """centre ± radius, the smallest box for any p."""
        reach = _per_sample(self.radius, self.centre) * (1 + ROUNDING) + ROUNDING * self.centre.abs()
        return Box(lower=self.centre - reach, upper=self.centre + reach)


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Values of a step: in `box`, in the l_2 ball `tube` around the value at x, and in `ball`, where these are known.

    `ball` is the l_p ball of the inputs up to the first layer that does more than move or scale entries.
    """

    box: Box
    tube: Ball | None
    ball: Ball | None = None

    def take(self, samples: Tensor) -> Region:
        """The region of some samples, without `ball`."""
        box = Box(lower=self.box.lower[samples], upper=self.box.upper[samples])
        tube = self.tube
        if tube is not None:
            tube = Ball(centre=tube.centre[samples], radius=tube.radius[samples], q=tube.q)
        return Region(box=box, tube=tube)


def inputs(x: Tensor, radius: Tensor, p: float, q: float, *, tubes: bool) -> Region:
    """The l_p ball around the inputs, with the l_2 ball around it if `tubes`."""
    ball = Ball(centre=x, radius=radius, q=q)
    larger = x[0].numel() ** (0.5 - 1 / p) if p > 2 else 1.0
    tube = Ball(centre=x, radius=radius * larger * (1 + ROUNDING), q=2.0) if tubes else None
    return Region(box=ball.box(), tube=tube, ball=ball)


@singledispatch
def through(step: Step, regions: Sequence[Region]) -> Region:
    """A region of the outputs of `step` for inputs in `regions`."""
    raise TypeError(f"{step!r} has no region for {len(regions)} inputs")


@through.register
def _(step: Affine, regions: Sequence[Region]) -> Region:
    """Layers that permute or scale entries map the l_p ball to a ball.

    The first other layer uses the exact row bound (Wx + b)_i ± radius·‖W_i‖_q. Its interval is exact if no layer before
    it scales entries, or if one scales all of them alike.
    """
    (region,) = regions
    tube = None
    if region.tube is not None:
        radius = region.tube.radius * step.lipschitz * (1 + ROUNDING)
        tube = Ball(centre=step.forward(region.tube.centre), radius=radius, q=2.0)
    if step.moves:
        moved = Box(lower=step.forward(region.box.lower), upper=step.forward(region.box.upper))
        ball = region.ball
        if ball is not None:
            ball = Ball(centre=step.forward(ball.centre), radius=ball.radius, q=ball.q)
        return Region(box=moved, tube=tube, ball=ball)
    middle, half = (region.box.upper + region.box.lower) / 2, (region.box.upper - region.box.lower) / 2
    box = _around(step, middle, step.magnitude(half + ROUNDING * (middle.abs() + half)))
    known = region.tube if region.ball is None else region.ball
    if known is not None and step.row_norms is not None:
        box = box.meet(_by_rows(step, known))
    return Region(box=box, tube=tube, ball=_scaled(step, region.ball) if step.diagonal else None)


@through.register
def _(step: Slopes, regions: Sequence[Region]) -> Region:
    (region,) = regions
    low, high = region.box.lower, region.box.upper
    ends = step.forward(low), step.forward(high)
    least, most = torch.minimum(*ends), torch.maximum(*ends)
    across = (low < 0) & (high > 0)  # a kink may be lower or higher than both ends
    box = Box(lower=torch.where(across, least.clamp(max=0), least), upper=torch.where(across, most.clamp(min=0), most))
    return Region(box=box, tube=_tube(step, region))


@through.register
def _(step: MaxPool, regions: Sequence[Region]) -> Region:
    (region,) = regions
    box = Box(lower=step.forward(region.box.lower), upper=step.forward(region.box.upper))
    return Region(box=box, tube=_tube(step, region))


@through.register
def _(step: Sum, regions: Sequence[Region]) -> Region:
    boxes = [region.box for region in regions]
    larger = [torch.maximum(box.lower.abs(), box.upper.abs()) for box in boxes]
    slack = ROUNDING * Sum(weights=tuple(map(abs, step.weights))).forward(*larger)
    signs = [weight > 0 for weight in step.weights]
    lower = step.forward(*(box.lower if up else box.upper for up, box in zip(signs, boxes, strict=True))) - slack
    upper = step.forward(*(box.upper if up else box.lower for up, box in zip(signs, boxes, strict=True))) + slack
    tubes, tube = [region.tube for region in regions if region.tube is not None], None
    if len(tubes) == len(regions):
        radius = torch.stack([abs(w) * ball.radius for w, ball in zip(step.weights, tubes)]).sum(dim=0)
        tube = Ball(centre=step.forward(*(ball.centre for ball in tubes)), radius=radius * (1 + ROUNDING), q=2.0)
    return Region(box=Box(lower=lower, upper=upper), tube=tube)


@through.register
def _(step: RootMeanSquare, regions: Sequence[Region]) -> Region:
    """z_i = c_i/s with s² = (c_i² + R_i)/n + ε and R_i the other squares: increasing in c_i, and |z_i| falls with R_i.

    So the smallest and the largest z_i of a box lie at an end of c_i with the largest or smallest R_i. z has the
    Lipschitz constant 1/s, s the smallest in the group, and ‖z‖ ≤ √n of every group.
    """
    (region,) = regions
    low, high = step.groups(region.box.lower), step.groups(region.box.upper)
    least, most = squares(low, high)
    fewest, greatest = divisors(step, region)
    rest_least = (least.sum(dim=2, keepdim=True) * (1 - ROUNDING) - least).clamp(min=0)
    rest_most = most.sum(dim=2, keepdim=True) * (1 + ROUNDING) - most

    def ratio(end: Tensor, is_far: Tensor) -> Tensor:
        """The end of c_i over the s that is smallest (where `is_far`) or largest."""
        small = torch.maximum(((end.square() + rest_least) / step.size + step.eps).sqrt(), fewest)
        large = torch.minimum(((end.square() + rest_most) / step.size + step.eps).sqrt(), greatest)
        return end / torch.where(is_far, small, large)

    below, above = ratio(low, low < 0), ratio(high, high > 0)
    box = Box(lower=below - ROUNDING * below.abs(), upper=above + ROUNDING * above.abs())
    box = Box(lower=box.lower.view_as(region.box.lower), upper=box.upper.view_as(region.box.upper))
    if region.tube is None:
        return Region(box=box, tube=None)
    centre = step.forward(region.tube.centre)
    steepest = (1 / fewest).flatten(1).amax(dim=1)
    # All divided groups together are shorter than √entries.
    farthest = torch.linalg.vector_norm(centre.flatten(1), dim=1) + centre[0].numel() ** 0.5
    radius = torch.minimum(region.tube.radius * steepest, farthest) * (1 + ROUNDING)
    tube = Ball(centre=centre, radius=radius, q=2.0)
    return Region(box=box.meet(tube.box()), tube=tube)


def squares(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and largest squares of numbers in intervals."""
    ends = low.square(), high.square()
    across = (low <= 0) & (high >= 0)
    return torch.where(across, torch.zeros_like(low), torch.minimum(*ends)), torch.maximum(*ends)


def divisors(step: RootMeanSquare, region: Region) -> tuple[Tensor, Tensor]:
    """The smallest and largest √(‖c‖²/size + ε) of every group, `[batch, groups, 1]`; never below √ε."""
    low, high = step.groups(region.box.lower), step.groups(region.box.upper)
    least, most = (part.sum(dim=2, keepdim=True) for part in squares(low, high))
    if region.tube is not None:
        length = torch.linalg.vector_norm(step.groups(region.tube.centre), dim=2, keepdim=True)
        reach = region.tube.radius.view(-1, 1, 1) + ROUNDING * length
        least = torch.maximum(least, (length - reach).clamp(min=0).square())
        most = torch.minimum(most, (length + reach).square())
    fewest, greatest = (((part / step.size) + step.eps).sqrt() for part in (least, most))
    return fewest * (1 - ROUNDING), greatest * (1 + ROUNDING)


def _tube(step: Slopes | MaxPool, region: Region) -> Ball | None:
    if region.tube is None:
        return None
    radius = region.tube.radius * step.lipschitz * (1 + ROUNDING)
    return Ball(centre=step.forward(region.tube.centre), radius=radius, q=2.0)


def _scaled(step: Affine, ball: Ball | None) -> Ball | None:
    """The ball of radius·max|W_ii|, widened for the rounding of its centre."""
    if ball is None:
        return None
    sizes = step.magnitude(ball.centre.abs())
    if step.bias is not None:
        sizes = sizes + step.bias.abs()
    slack = ROUNDING * norms.lp(sizes.flatten(1), norms.dual(ball.q))
    radius = ball.radius * step.lipschitz * (1 + ROUNDING) + slack
    return Ball(centre=step.forward(ball.centre), radius=radius, q=ball.q)


def _by_rows(step: Affine, ball: Ball) -> Box:
    assert step.row_norms is not None
    rows = step.row_norms(ball.q, None) * (1 + ROUNDING)
    spread = ball.radius.view(-1, *[1] * rows.ndim) * rows
    return _around(step, ball.centre, spread + ROUNDING * step.magnitude(ball.centre.abs()))


def _around(step: Affine, middle: Tensor, spread: Tensor) -> Box:
    centre = step.forward(middle)
    if step.bias is not None:
        spread = spread + ROUNDING * step.bias.abs()
    return Box(lower=centre - spread, upper=centre + spread)


def _per_sample(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))
