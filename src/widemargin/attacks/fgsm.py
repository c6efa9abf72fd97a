"""The fast gradient sign method, in one step and in several."""

from __future__ import annotations

import math

from torch import nn

from widemargin.attacks.ascent import gradient
from widemargin.attacks.input_range import Bounds, Inputs, check_inputs, into_bounds, into_box
from widemargin.checks import check_count, check_number
from widemargin.types import Labels


def fgsm(model: nn.Module, x: Inputs, y: Labels, epsilon: float | int, *, bounds: Bounds = (0.0, 1.0)) -> Inputs:
    """x̂ = x + ε·sign ∇_x L(x), clipped to the range of the data (Goodfellow et al. 2014; elsayed §4.2.3).

    L is the cross-entropy, softplus(−f·y) for a binary network (only its direction counts, see `ascent`). For a
    network with affine scores and two classes, no other x̂ within ε in l_∞ has a smaller margin.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs inside `bounds`.
        y: class indices, or −1.0 and +1.0 for a binary network.
        epsilon: ε ≥ 0, the l_∞ distance that inputs may move.
        bounds: the range of the data, or None. The paper's equation does not clip to it, though its images lie in it.
    """
    check_number("epsilon", epsilon, least=0.0)
    check_inputs(x, bounds)
    if epsilon == 0:
        return x.detach().clone()
    return into_bounds(x.detach() + epsilon * gradient(model, x, y).sign(), bounds)


def ifgsm(
    model: nn.Module,
    x: Inputs,
    y: Labels,
    epsilon: float | int,
    *,
    step: float | int | None = None,
    steps: int | None = None,
    bounds: Bounds = (0.0, 1.0),
) -> Inputs:
    """x̂^k = Clip_{x,ε}(x̂^{k−1} + α·sign ∇_x L(x̂^{k−1})), x̂^0 = x (Kurakin et al. 2016; elsayed §4.2.3).

    Erratum 8 of elsayed: the gradient is at x̂^{k−1}, printed as x̂^k. Each iterate is also clipped to `bounds`.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs inside `bounds`.
        y: class indices, or −1.0 and +1.0 for a binary network.
        epsilon: ε ≥ 0, the l_∞ distance that inputs may move.
        step: α > 0, by default ε/10.
        steps: number of iterations k, in the paper ≥ ε/α, so that x̂ can reach the corners of the box; by
            default the smallest such number.
        bounds: the range of the data, or None.
    """
    check_number("epsilon", epsilon, least=0.0)
    if step is not None:
        check_number("step", step, above=0.0)
    if steps is not None:
        check_count("steps", steps)
    check_inputs(x, bounds)
    if epsilon == 0:
        return x.detach().clone()
    step = epsilon / 10 if step is None else step
    needed = math.ceil(epsilon / step * (1 - 1e-9))  # 3·0.1 is a little more than 3 steps of 0.1 in floating point
    if steps is not None and steps < needed:
        raise ValueError(
            f"steps is {steps}, but epsilon/step is {epsilon / step:g}: expected steps >= {needed}, or a larger step"
        )
    x = x.detach()
    moved = x
    for _ in range(needed if steps is None else steps):
        moved = into_box(moved + step * gradient(model, moved, y).sign(), x, epsilon, bounds)
    return moved
