"""Attacks by gradient ascent: one step along the sign, several, and projected ascent from a random start."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.attacks.input_range import Bounds, Inputs, check_bounds, check_inputs, into_bounds
from widemargin.attacks.noise import Seed, as_generator, normal, uniform
from widemargin.checks import check_choice, check_count, check_flag, check_number, check_scores_and_labels
from widemargin.data.array_arguments import takes_arrays
from widemargin.entry_checks import check_call
from widemargin.modules import cast_input, evaluating, forward, unwrap_ddp
from widemargin.probabilities import Outputs, check_are_scores, read_model
from widemargin.types import Labels, PerExample, Scores, is_binary, wide


@takes_arrays
def fgsm(
    model: nn.Module,
    x: Inputs,
    y: Labels,
    epsilon: float | int,
    *,
    bounds: Bounds = (0.0, 1.0),
    read_as: Outputs = "logits",
) -> Inputs:
    """x̂ = x + ε·sign ∇_x L(x), clipped to the range of the data (Goodfellow et al. 2014; elsayed §4.2.3).

    L is the cross-entropy, softplus(−f·y) for a binary network (only its direction counts, see `gradient`). For a
    network with affine scores and two classes, no other x̂ within ε in l_∞ has a smaller margin.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs inside `bounds`: a tensor, a NumPy array or a pandas frame; cast to the dtype of the network, which x̂
            has.
        y: class indices, names of classes, or −1.0 and +1.0 for a binary network.
        epsilon: ε ≥ 0, the l_∞ distance that inputs may move.
        bounds: the range of the data, or None. The paper's equation does not clip to it, though its images lie in it.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid, see `margins.from_probabilities`.
    """
    check_number("epsilon", epsilon, least=0.0)
    return pgd(model, x, y, epsilon, step=epsilon or 1.0, steps=1, random_start=False, bounds=bounds, read_as=read_as)


@takes_arrays
def ifgsm(
    model: nn.Module,
    x: Inputs,
    y: Labels,
    epsilon: float | int,
    *,
    step: float | int | None = None,
    steps: int | None = None,
    bounds: Bounds = (0.0, 1.0),
    read_as: Outputs = "logits",
) -> Inputs:
    """x̂^k = Clip_{x,ε}(x̂^{k−1} + α·sign ∇_x L(x̂^{k−1})), x̂^0 = x (Kurakin et al. 2016; elsayed §4.2.3).

    Erratum 8 of elsayed: the gradient is at x̂^{k−1}, printed as x̂^k. Each iterate is also clipped to `bounds`.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs inside `bounds`: a tensor, a NumPy array or a pandas frame; cast to the dtype of the network, which x̂
            has.
        y: class indices, names of classes, or −1.0 and +1.0 for a binary network.
        epsilon: ε ≥ 0, the l_∞ distance that inputs may move.
        step: α > 0, by default ε/10.
        steps: number of iterations k, in the paper ≥ ε/α, so that x̂ can reach the corners of the box; by
            default the smallest such number.
        bounds: the range of the data, or None.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid.
    """
    check_settings(epsilon, step, 1 if steps is None else steps, math.inf, bounds)
    step = (epsilon or 1.0) / 10 if step is None else step
    # 3·0.1 is a little more than 3 steps of 0.1 in floating point.
    needed = max(1, math.ceil(epsilon / step * (1 - 1e-9)))
    if steps is not None and steps < needed:
        raise ValueError(
            f"steps is {steps}, but epsilon/step is {epsilon / step:g}: expected steps >= {needed}, or a larger step"
        )
    steps = needed if steps is None else steps
    return pgd(model, x, y, epsilon, step=step, steps=steps, random_start=False, bounds=bounds, read_as=read_as)


@takes_arrays
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
    read_as: Outputs = "logits",
) -> Inputs:
    """x̂ ← Π(x̂ + α·d(∇_x L(x̂))), from a uniform point of the ball of radius ε about x (Madry et al. 2018).

    In l_∞ d is the sign and Π clips to the box, in l_2 d is the unit vector and Π scales back to the ball; both then
    clip to the range of the data. L is the cross-entropy. The last iterate is returned.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs inside `bounds`: a tensor, a NumPy array or a pandas frame; cast to the dtype of the network, which x̂
            has.
        y: class indices, names of classes, or −1.0 and +1.0 for a binary network.
        epsilon: radius ε ≥ 0.
        step: α > 0, by default 2.5·ε/steps; Madry's MNIST networks have ε = 0.3, α = 0.01, 40 steps.
        steps: number of steps.
        p: the norm of the ball, ∞ or 2.
        random_start: start at a uniform point of the ball, or at x.
        seed: of the start: an integer, or a generator to draw from.
        bounds: the range of the data, or None.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid.
    """
    check_settings(epsilon, step, steps, p, bounds)
    check_flag("random_start", random_start)
    check_inputs(x, bounds)
    model = read_model(model, read_as)
    x = cast_input(model, x.detach())
    check_call(unwrap_ddp(model), x, y)
    y = y.to(x.device)
    start = _start(x, epsilon, p, as_generator("pgd", seed)) if random_start else x.clone()
    if epsilon == 0:
        return x.clone()
    step = 2.5 * epsilon / steps if step is None else step
    moved = into_bounds(start, bounds)
    for _ in range(steps):
        slope = gradient(model, moved, y)
        if p == 2:
            moved = _into_ball(moved + step * _unit(slope), x, epsilon)
        else:
            moved = (moved + step * slope.sign()).clamp(x - epsilon, x + epsilon)
        moved = into_bounds(moved, bounds)
    return moved


def check_settings(epsilon: float | int, step: float | int | None, steps: int, p: float | int, bounds: Bounds) -> None:
    """Raise unless the settings of `pgd` are valid."""
    check_number("epsilon", epsilon, least=0.0)
    if step is not None:
        check_number("step", step, above=0.0)
    check_count("steps", steps)
    check_bounds(bounds)
    check_choice("p", p, (math.inf, 2))


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


def gradient(model: nn.Module, x: Inputs, y: Labels) -> Inputs:
    """∇_x of `excess`, which has for every sample the direction of the gradient of its cross-entropy.

    Attacks use the direction alone: its sign or its unit vector. The cross-entropy is softplus(excess), so its gradient
    is a positive multiple of this one. That multiple is the probability of being wrong, which rounds to 0 for a
    confident network: such a network would seem robust only because its gradient vanishes in floating point.
    """
    network = unwrap_ddp(model)
    with evaluating(network), torch.inference_mode(False), torch.enable_grad():
        moved, y = x.clone().detach().requires_grad_(), y.clone()  # neither may be an inference tensor
        scores = forward(network, moved)
        check_are_scores(network, scores)
        (slope,) = torch.autograd.grad(excess(scores, y).sum(), moved)
    return slope


def excess(scores: Scores, y: Labels) -> PerExample:
    """log Σ_{j≠y} exp f_j − f_y, or −f·y for a binary network with labels ±1."""
    check_scores_and_labels(scores, y, finite=True)
    f = wide(scores)
    if is_binary(f):
        return -f.reshape(-1) * y.to(f.dtype)
    label = y[:, None].long()
    return f.scatter(1, label, -torch.inf).logsumexp(dim=1) - f.gather(1, label).squeeze(1)
