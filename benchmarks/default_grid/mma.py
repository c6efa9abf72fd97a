"""Max-margin adversarial training (MMA) of a stack of networks, as a baseline of the grid.

After Ding, Sharma, Lui & Huang, ICLR 2020: ⅓·CE(x) + ⅔·L, where L is CE(x) of a misclassified sample, CE at the nearest
misclassified point of a right one whose distance is below d_max, and 0 of the others. The nearest point is searched for
by PGD in the ball of radius d_max and bisection between the sample and its result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from widemargin.data import Samples
from widemargin.losses import CrossEntropy
from widemargin.losses.margin import cross_entropy
from widemargin.modules import evaluating, without_running_stats
from widemargin.population.batches import StackedBatch, samples_of
from widemargin.population.objective import Objective
from widemargin.population.optimizers import stackable
from widemargin.population.rng import Streams
from widemargin.population.run import PopulationConfig, PopulationRun
from widemargin.population.stack import Stack
from widemargin.training import Cosine

D_MAX = 0.08
"""d_max as a part of √D, the length of a standardised input: of CIFAR-10 about 1.1 with pixels in [0, 1]."""

PGD_STEPS, BISECTIONS = 10, 6


class MaxMargin(Objective):
    """The objective of MMA, for all networks at once."""

    def _loss(self, stack: Stack, batch: StackedBatch, key: Tensor | None, streams: Streams) -> Tensor:  # noqa: ARG002
        y = batch.y.flatten()
        scores, _ = stack.scores(batch.x, keys=key)
        plain, is_right = cross_entropy(scores, y), excess_of(scores.detach(), y) < 0
        nearest, is_found = nearest_point(stack, batch.x, y)
        with without_running_stats(stack.base):
            moved, _ = stack.scores(nearest, keys=key)
        at_boundary = torch.where(is_found, cross_entropy(moved, y), torch.zeros_like(plain))
        values = plain / 3 + 2 / 3 * torch.where(is_right, at_boundary, plain)
        return values.view(len(stack), -1).mean(dim=1)


def nearest_point(stack: Stack, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The first misclassified point on the line to the result of PGD, and whether there is one, `[networks·batch]`."""
    radius = D_MAX * math.sqrt(x[0, 0].numel())
    flat = (*x.shape[:2], *[1] * (x.ndim - 2))

    def unit(rows: Tensor) -> Tensor:
        return rows / rows.flatten(2).norm(dim=2).clamp_min(1e-12).view(flat)

    def value(offset: Tensor) -> Tensor:
        return excess_of(stack.scores(x + offset)[0], y)

    with evaluating(stack.base):
        offset = torch.zeros_like(x)
        for _ in range(PGD_STEPS):
            offset.requires_grad_()
            (slope,) = torch.autograd.grad(value(offset).sum(), offset)
            offset = offset.detach() + 2.5 * radius / PGD_STEPS * unit(slope)
            length = offset.flatten(2).norm(dim=2).view(flat)
            offset = offset * (radius / length.clamp_min(radius))
        with torch.no_grad():
            is_found = value(offset) > 0
            low, high = torch.zeros(flat[:2], device=x.device), torch.ones(flat[:2], device=x.device)
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                is_wrong = (value(middle.view(flat) * offset) > 0).view_as(middle)
                low, high = torch.where(is_wrong, low, middle), torch.where(is_wrong, middle, high)
    return x + high.view(flat) * offset, is_found


def excess_of(scores: Tensor, y: Tensor) -> Tensor:
    """The strongest other score minus that of the label; positive for a misclassified sample."""
    label = y[:, None]
    return scores.scatter(1, label, -torch.inf).amax(dim=1) - scores.gather(1, label).squeeze(1)


def fit(
    networks: Sequence[nn.Module],
    data: Sequence[Samples],
    *,
    optimizer: Sequence[Any],
    steps: int,
    batch_size: int,
    seeds: Sequence[int],
    convolutions: Any,
    device: str,
) -> tuple[list[nn.Module], str | None]:
    """`population.fit` with this objective: trained copies, and why there was no CUDA graph."""
    where, plain = torch.device(device), CrossEntropy()
    plan = PopulationConfig(
        networks=networks,
        data=samples_of(list(data), len(networks), where, torch.float32),
        losses=[plain] * len(networks),
        optimizers=stackable(optimizer, networks[0]),
        seeds=seeds,
        regularizers=(),
        steps=steps,
        batch_size=batch_size,
        schedule=Cosine(),
        until=None,
        device=where,
    )
    with closing(PopulationRun(plan, range(len(networks)), convolutions)) as run:
        run.objectives = [MaxMargin(plan.losses, (), run.table.size, where)]
        results = run.train(lambda _: None)
    return [results[k].network for k in range(len(networks))], run.no_cuda_graph
