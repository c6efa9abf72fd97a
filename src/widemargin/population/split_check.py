"""Do the samples of every network of a stack stay apart on the way back, and where does each lie in the gradients?

The identity of `training.backward_check`, tried in the same way, with a weight for every sample of every network. What
arrives at a use of stacked parameters has networks along one dimension, or folded into one (`[batch, networks·channels,
h, w]` of a grouped convolution), and samples along another, each taking a row or several (`[networks, batch·h·w, out]`
of a product of patches), or both along the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin._autograd.preserve_rng import preserve_rng
from widemargin.losses import MarginLoss
from widemargin.margins.output import differences
from widemargin.population.batches import Batch
from widemargin.population.stack import Stack
from widemargin.split_backward.graph import Graph, graph_of
from widemargin.split_backward.sample_layouts import agreeing, drawn, named

FEW = 8
"""Samples of every network on trial."""


@dataclass(frozen=True)
class StackedLayout:
    """How networks and samples lie in a tensor: along the dimensions `networks` and `samples`, which may be the same.

    The rows of a network are next to each other, and outside of samples; those of a sample, `each` of them, are next to
    each other or in turn.
    """

    networks: int
    samples: int
    each: int
    is_adjacent: bool

    def factors(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """What multiplies the part of sample k of network n of `gradient` by `weights[n, k]`."""
        if self.each > 1:
            spread = weights.repeat_interleave(self.each, 1) if self.is_adjacent else weights.repeat(1, self.each)
        else:
            spread = weights
        shape = [1] * gradient.ndim
        if self.networks == self.samples:
            shape[self.networks] = -1
            return spread.to(gradient.dtype).reshape(shape)
        rows = gradient.shape[self.networks] // len(weights)
        spread = spread.repeat_interleave(rows, 0) if rows > 1 else spread
        shape[self.networks], shape[self.samples] = spread.shape
        turned = spread if self.networks < self.samples else spread.T
        return turned.to(gradient.dtype).reshape(shape)


@dataclass(frozen=True)
class StackedLayouts:
    """Of every use, of every gradient that arrives there: the layouts that are right, and the shape on trial."""

    of_uses: tuple[tuple[tuple[tuple[StackedLayout, ...], tuple[int, ...]], ...], ...]
    few: int

    def choose(self, graph: Graph, samples: int) -> list[list[StackedLayout]] | None:
        """The first layout that fits, of every gradient of every use of `graph`; None where there is none."""
        chosen = []
        for use, found in zip(graph.uses, self.of_uses, strict=True):
            fitting = [
                next((way for way in right if self._with(samples, way, like) == shape), None)
                for shape, (right, like) in zip(use.shapes(), found, strict=True)
            ]
            if None in fitting:
                return None
            chosen.append([layout for layout in fitting if layout is not None])
        return chosen

    def _with(self, samples: int, way: StackedLayout, like: tuple[int, ...]) -> tuple[int, ...]:
        """The shape `like` with so many samples a network."""
        size = like[way.samples] // self.few * samples
        return *like[: way.samples], size, *like[way.samples + 1 :]


def tried(stack: Stack, loss: MarginLoss, batch: Batch, key: Tensor | None, graph: Graph) -> StackedLayouts | str:
    """The layouts of `graph`, by a forward pass of a few samples with random parameters; or why there are none."""
    few = min(batch.y.shape[1], FEW)
    with preserve_rng(stack.device):
        parameters = drawn(stack.parameters, stack.device, stacked=True)
        buffers = {name: buffer.clone() for name, buffer in stack.buffers.items()}
        trial = stack.holding(parameters, buffers)
        scores, at = trial.scores(batch.x[:, :few], at=loss.at, statistics=loss.statistics, keys=key)
    if scores.grad_fn is None or not bool(torch.isfinite(scores).all()):
        return "the scores of a few samples on trial are not finite"
    own = graph_of(scores, list(at.values()))
    if own.names != graph.names or len(own.uses) != len(graph.uses):
        return f"the graph of {few} samples on trial is another one"
    difference = differences(scores, batch.y[:, :few].flatten(), classes=1, read_as=loss.scores)
    weights = _weights(len(stack), few).to(difference)
    edges = [edge for use in own.uses for edge in use.edges]
    plain, weighted = (
        torch.autograd.grad(difference, edges, w.reshape(-1, 1), retain_graph=True, allow_unused=True)
        for w in (torch.ones_like(weights), weights)
    )
    arrived = zip(plain, weighted, strict=True)
    of_uses = []
    for use, real in zip(own.uses, graph.uses, strict=True):
        found = [agreeing(*next(arrived), weights, _layouts(shape, len(stack), few)) for shape in use.shapes()]
        if not all(found):
            return f"{named(stack.parameters, real)} does not treat samples one by one"
        of_uses.append(tuple(zip(found, use.shapes(), strict=True)))
    return StackedLayouts(tuple(of_uses), few)


def _weights(networks: int, samples: int) -> Tensor:
    """Powers of two, of both signs: they commute with rounding, and are drawn, so that no layout passes for another."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-2, 3, (networks, samples), generator=generator)
    signs = 2 * torch.randint(0, 2, (networks, samples), generator=generator) - 1
    return signs * torch.exp2(exponents.double())


def _layouts(shape: Sequence[int], networks: int, samples: int) -> Iterator[StackedLayout]:
    for n, rows in enumerate(shape):
        for k, size in enumerate(shape):
            if not rows or not size or rows % networks:
                continue
            size = size // networks if n == k else size
            if size and size % samples == 0:
                each = size // samples
                yield StackedLayout(n, k, each, is_adjacent=True)
                if each > 1 and samples > 1:
                    yield StackedLayout(n, k, each, is_adjacent=False)
