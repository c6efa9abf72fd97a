"""Projected gradient ascent from a random start."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.attacks.ascent import gradient
from widemargin.attacks.input_range import Bounds, Inputs, check_inputs, into_bounds, into_box
from widemargin.attacks.rng import Seed, as_generator, normal, uniform
from widemargin.checks import check_count, check_number
from widemargin.types import Labels


def pgd(
    model: nn.Module,
    x: Inputs,
    y: Labels,
    epsilon: float | int,
    *,
    step: float | int | None = None,
    steps: int = 40,
    p: float | int = math.inf,
    random_start: bool = True,
    seed: Seed = 0,
    bounds: Bounds = (0.0, 1.0),
) -> Inputs:
    """x̂ ← Π(x̂ + α·d(∇_x L(x̂))), from a uniform point of the ball of radius ε about x (Madry et al. 2018).

    In l_∞ d is the sign and Π clips to the box, in l_2 d is the unit vector and Π scales back to the ball; both then
    clip to the range of the data. L is the cross-entropy. The last iterate is returned.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs inside `bounds`.
        y: class indices, or −1.0 and +1.0 for a binary network.
        epsilon: radius ε ≥ 0.
        step: α > 0, by default 2.5·ε/steps; Madry's MNIST networks have ε = 0.3, α = 0.01, 40 steps.
        steps: number of steps.
        p: the norm of the ball, ∞ or 2.
        random_start: start at a uniform point of the ball, or at x.
        seed: of the start: an integer, or a generator to draw from.
        bounds: the range of the data, or None.
    """
    check_number("epsilon", epsilon, least=0.0)
    if step is not None:
        check_number("step", step, above=0.0)
    check_count("steps", steps)
    check_inputs(x, bounds)
    check_norm(p)
    x = x.detach()
    start = _start(x, epsilon, p, as_generator("pgd", seed)) if random_start else x.clone()
    if epsilon == 0:
        return x.clone()
    step = 2.5 * epsilon / steps if step is None else step
    moved = into_bounds(start, bounds)
    for _ in range(steps):
        slope = gradient(model, moved, y)
        if p == 2:
            moved = into_bounds(_into_ball(moved + step * _unit(slope), x, epsilon), bounds)
        else:
            moved = into_box(moved + step * slope.sign(), x, epsilon, bounds)
    return moved


def check_norm(p: float | int) -> None:
    """Raise unless there is an attack in the norm p."""
    if p not in (2, math.inf):
        raise ValueError(f"p is {p!r}, expected inf or 2")


def _start(x: Tensor, epsilon: float | int, p: float | int, source: torch.Generator) -> Tensor:
    size = x[:1].numel()
    if p == math.inf:
        offset = 2 * uniform(len(x), size, source) - 1
    else:
        # A direction, and a radius whose power `size` is uniform.
        drawn = uniform(len(x), size + 1, source)
        offset = _unit(normal(drawn[:, :size])) * drawn[:, size:] ** (1 / size)
    return x + epsilon * offset.to(x).view(x.shape)


def _unit(slope: Tensor) -> Tensor:
    """Each row over its l_2 norm; a zero row stays zero."""
    length = _lengths(slope)
    return torch.where(length > 0, slope / length, torch.zeros_like(slope))


def _into_ball(moved: Tensor, x: Tensor, epsilon: float | int) -> Tensor:
    offset = moved - x
    length = _lengths(offset)
    return x + torch.where(length > epsilon, offset * (epsilon / length), offset)


def _lengths(rows: Tensor) -> Tensor:
    """The l_2 norm of each row, in a shape that broadcasts with `rows`."""
    return norms.lp(rows, 2.0).to(rows.dtype).view(-1, *[1] * (rows.ndim - 1))
