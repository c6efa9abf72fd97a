"""The Jacobian bound of the input margin (sokolic, 19): estimated along directions, and exact in the plane."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.bounds.result import Certificate, MarginEstimate
from widemargin.checks import check_scores_and_labels
from widemargin.geometry import jacobian_margin
from widemargin.geometry.network import against
from widemargin.modules import cast_input, evaluating, scores_of, uncompiled
from widemargin.types import PerExample

_REACH = 2.0
"""Length of the walk in linearised distances: with a constant Jacobian the bound lies at 1."""


def jacobian_estimate(
    network: nn.Module, x: Tensor, labels: Tensor, directions: int, steps: int, seed: int, batch_size: int
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
        for batch, y in zip(x.split(batch_size), labels.split(batch_size)):
            inputs = cast_input(network, batch)
            parts.append(_along(network, inputs, y.to(inputs.device), directions, steps, generator))
    return MarginEstimate(what=f"Jacobian bound (19) along {directions + 1} directions", values=torch.cat(parts).cpu())


def jacobian_exact(network: nn.Module, x: Tensor, labels: Tensor) -> Certificate:
    """(19) of samples in the plane, over every region that a ball meets; 0 where a sample is misclassified.

    Balls are cut at 10 times the spread of the samples, which keeps the bound valid.
    """
    wide = float(torch.linalg.vector_norm((x - x.mean(dim=0)).double(), dim=1).max())
    reach = 10 * wide if wide > 0 else 10.0
    values = jacobian_margin(network, x, labels, reach=reach).cpu()
    return Certificate(what="Jacobian bound (19), exact in 2-D", values=values)


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
