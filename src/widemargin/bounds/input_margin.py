"""Lower bounds of the input margin of each sample: from its output margin, and by the Jacobian (sokolic, Theorem 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.bounds.chain import chain_of
from widemargin.bounds.result import Certificate, MarginEstimate
from widemargin.checks import check_batch, check_choice, check_count, check_labels, check_scores_and_labels, check_seed
from widemargin.geometry import jacobian_margin
from widemargin.layers.network import against
from widemargin.modules import cast_input, evaluating, predict, scores_of, uncompiled, unwrap
from widemargin.types import Labels, PerExample, is_binary

_REACH = 2.0
"""Length of the walk in linearised distances: with a constant Jacobian the bound lies at 1."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InputMargin:
    """γ_out of every sample, and bounds of γ_in: `frobenius` ≤ `spectral` ≤ γ_in, and `jacobian`.

    `jacobian` is a certificate if it is exact, and None if `directions` is 0.
    """

    output: PerExample
    frobenius: Certificate
    spectral: Certificate
    jacobian: Certificate | MarginEstimate | None
    frobenius_product: float
    spectral_product: float
    lipschitz_factor: float

    def __repr__(self) -> str:
        shown = (self.frobenius, self.spectral, self.jacobian)
        return "\n".join(["input margin (sokolic, Theorem 5)", *(f"  {part}" for part in shown if part is not None)])


def input_margin(
    model: nn.Module,
    x: Tensor,
    y: Labels,
    *,
    jacobian: Literal["estimate", "exact"] = "estimate",
    directions: int = 8,
    steps: int = 16,
    seed: int = 0,
    batch_size: int = 256,
) -> InputMargin:
    """γ_in ≥ sup{c : ‖x−x_i‖ ≤ c ⇒ r^J > 1} (19) ≥ γ_out/Π‖W_l‖_2 ≥ γ_out/Π‖W_l‖_F (20) (sokolic, Theorem 5).

    γ_out = min_{c≠y} (f_y − f_c)/‖v_y − v_c‖_2, with v_c the rows of the last layer and W_l the layers below it; a
    binary network has one v. The spectral product is not in the paper and lies between its two. Both products carry
    the Lipschitz constants of activations, BatchNorm (evaluation mode) and overlapping pools, and convolutions are
    operators: ‖kernel‖_F would certify too much. A misclassified sample has margin 0 (errata 2).

    The two products are certificates. (19) depends on all regions of a ball, which can be enumerated only in 2-D: there
    `jacobian="exact"` gives a third certificate. Elsewhere it is an estimate (errata 6): from finitely many directions
    it tends to be too high.

    Args:
        model: a chain of layers, biases allowed, see `chain.chain_of`.
        x: inputs.
        y: class indices, or ±1 for a network with one output.
        jacobian: (19) as an "estimate", or for inputs of two dimensions "exact", see `geometry.jacobian_margin`.
        directions: random directions of the estimate of (19), beside that of the gradient; 0 leaves it out.
        steps: points of the average Jacobian along each direction.
        seed: seed of the directions.
        batch_size: samples at a time.
    """
    check_count("directions", directions, least=0)
    check_count("steps", steps, least=2)
    check_count("batch_size", batch_size)
    check_choice("jacobian", jacobian, ("estimate", "exact"))
    check_seed(seed)
    check_batch(x, "x")
    check_labels(y, len(x))
    if jacobian == "exact" and tuple(x.shape[1:]) != (2,):
        raise ValueError(f"jacobian is 'exact', but x has shape {list(x.shape)}, expected [batch, 2]")
    chain = chain_of(model, x, biases="ignore", batch_norm=True)
    *hidden, last = chain.weights
    if not isinstance(last.module, nn.Linear):
        raise TypeError(f"layer {last.name!r} is a {type(last.module).__name__}, expected a Linear layer at the end")
    network = unwrap(model)
    scores = predict(network, x, batch_size=batch_size)
    gamma = output_margin(scores, y.to(scores.device), last.weight).cpu()
    spectral = math.prod((link.lipschitz for link in hidden), start=1.0)
    frobenius = math.prod((link.frobenius for link in hidden), start=1.0)
    nineteen: Certificate | MarginEstimate | None = None
    if jacobian == "exact":
        # Balls are cut at 10 times the spread of the samples, which keeps the bound valid.
        wide = float(torch.linalg.vector_norm((x - x.mean(dim=0)).double(), dim=1).max())
        values = jacobian_margin(network, x, y, reach=10 * wide or 10.0).cpu()
        nineteen = Certificate(what="Jacobian bound (19), exact in 2-D", values=values)
    elif directions:
        nineteen = jacobian_estimate(network, x, y, directions, steps, seed, batch_size)
    return InputMargin(
        output=gamma,
        frobenius=Certificate(what="γ_out/Π‖W‖_F (20)", values=gamma / (frobenius * chain.factor)),
        spectral=Certificate(what="γ_out/Π‖W‖_2", values=gamma / (spectral * chain.factor)),
        jacobian=nineteen,
        frobenius_product=frobenius,
        spectral_product=spectral,
        lipschitz_factor=chain.factor,
    )


def output_margin(scores: Tensor, y: Tensor, classifier: Tensor) -> PerExample:
    """max(min_{c≠y} (f_y − f_c)/‖v_y − v_c‖_2, 0) in float64 (sokolic, 13): the distance to the nearest class."""
    check_scores_and_labels(scores, y, finite=True)
    f = scores.double()
    v = classifier.to(f)
    if is_binary(scores):
        return (f.reshape(-1) * y / torch.linalg.vector_norm(v)).clamp(min=0)
    y = y.long()
    gaps = f.gather(1, y[:, None]) - f
    present, which = y.unique(return_inverse=True)
    # Class by class: all differences of rows at once would be classes² × features entries.
    between = torch.stack([torch.linalg.vector_norm(v[own] - v, dim=1) for own in present])[which]
    # Two classes with one vector and different biases never meet: the sign of the gap does not change.
    far = torch.where(gaps > 0, math.inf, 0.0)
    ratio = torch.where(between > 0, gaps / between, far)
    return ratio.scatter(1, y[:, None], math.inf).amin(dim=1).clamp(min=0)


def jacobian_estimate(
    network: nn.Module, x: Tensor, y: Tensor, directions: int, steps: int, seed: int, batch_size: int
) -> MarginEstimate:
    """The smallest t with ‖∇̄(f_y − f_c)‖_2·t ≥ f_y − f_c, ∇̄ averaged from x to x + t·u, over directions u.

    That is r^J = 1 of (17) along u, with v = v_y − v_c and c the class of smallest linearised distance. u is the
    descending gradient and `directions` random unit vectors. The walk ends at twice the linearised distance, which is
    the result if nothing is crossed before. Exact where the scores are affine. NaN where x has no gradient, 0 where it
    is misclassified.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = []
    with evaluating(network), uncompiled(network), torch.enable_grad():
        for batch, labels in zip(x.split(batch_size), y.split(batch_size)):
            inputs = cast_input(network, batch)
            parts.append(_along(network, inputs, labels.to(inputs.device), directions, steps, generator))
    return MarginEstimate(what=f"Jacobian bound (19) along {directions + 1} directions", values=torch.cat(parts).cpu())


def _along(
    network: nn.Module, x: Tensor, y: Tensor, directions: int, steps: int, generator: torch.Generator
) -> PerExample:
    towards, gap, first = _nearest(network, x, y)
    slope = norms.lp(first.double(), 2.0)
    linear = gap / torch.where(slope > 0, slope, torch.nan)
    shape = (-1, *[1] * (x.ndim - 1))
    best = _REACH * linear
    for k in range(directions + 1):
        u = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) if k else -first
        u = u / norms.lp(u, 2.0).clamp(min=torch.finfo(u.dtype).tiny).view(shape)
        total, previous = torch.zeros_like(first, dtype=torch.float64), first.double()
        before = torch.zeros_like(gap)
        found = torch.full_like(gap, torch.inf)
        for step in range(1, steps + 1):
            t = _REACH * linear * step / steps
            here = _gradient(network, x + t.nan_to_num().to(x.dtype).view(shape) * u, towards).double()
            total += (previous + here) / 2  # the trapezoid rule
            previous = here
            now = norms.lp(total, 2.0) / step * t
            # Linear between the two steps: exact where the Jacobian does not change.
            part = ((gap - before) / (now - before)).clamp(0, 1)
            crossed = t - (1 - part) * _REACH * linear / steps
            found = torch.where((now >= gap) & found.isinf(), crossed, found)
            before = now
        best = torch.minimum(best, found)
    return torch.where(gap > 0, best, torch.zeros_like(best))


def _nearest(network: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e_y − e_c for the class c of smallest linearised distance, f_y − f_c, and its gradient, of each sample."""
    x = x.detach().requires_grad_()
    scores = scores_of(network(x))
    check_scores_and_labels(scores, y)
    scores = scores.reshape(len(x), -1)
    towards = against(scores.shape[1], y).to(scores)
    gaps = torch.einsum("bco,bo->bc", towards, scores)
    gradients = [torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in gaps.unbind(dim=1)]
    slopes = torch.stack([norms.lp(g.double(), 2.0) for g in gradients], dim=1)
    gaps = gaps.detach().double()
    distances = (gaps / torch.where(slopes > 0, slopes, torch.nan)).nan_to_num(nan=torch.finfo(torch.float64).max)
    chosen = torch.arange(len(x), device=x.device), distances.argmin(dim=1)
    # A misclassified sample has a class ahead of its own; so has then the one of smallest signed distance.
    margin = gaps.amin(dim=1)
    return towards[chosen], torch.where(margin > 0, gaps[chosen], margin), torch.stack(gradients, dim=1)[chosen]


def _gradient(network: nn.Module, x: Tensor, towards: Tensor) -> Tensor:
    """∇(f_y − f_c) at `x`."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad((scores_of(network(x)).reshape(len(x), -1) * towards).sum(), x)
    return gradient
