"""The split backward of `training.backward`, for the networks of a stack.

The loss of a network depends on its scores through its differences d_k alone, so what arrives at a use of the stacked
parameters is, of sample k of network n, c_nk times what the pass that gave the slopes had there. Networks have losses
and scales of their own; that is all in c_nk = ∂(sum of the networks' mean losses)/∂d_nk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from widemargin import norms
from widemargin.checks import check_scores_and_labels
from widemargin.losses import MarginLoss
from widemargin.margins.distance import slope_at
from widemargin.margins.output import differences
from widemargin.population.batches import Batch
from widemargin.population.split_check import FEW, StackedLayout, StackedLayouts, tried
from widemargin.population.split_shortcuts import of_gradient
from widemargin.population.stack import Stack, StackedAt
from widemargin.split_backward import reasons
from widemargin.split_backward import weight_gradients as shortcuts
from widemargin.split_backward.graph import Factors, Graph, graph_of

LEAST = {"cpu": 2**20, "cuda": 10**8}
"""Bytes to keep of a layer, on average, below which two backwards are faster: the split has more operations to start.

On one core of a CPU it took 1.02 to 1.14 times as long with up to 0.3 MB (0.86 with products of patches, whose way back
to the activations is dear), and 0.65 to 1.10 with 1.3 MB and more. On an H200 it took 1.04 to 1.17 times as long with
up to 71 MB, and 0.77 to 0.91 with 132 MB and more; as a CUDA graph, where nothing is started, 0.74 to 0.97 however
small, and there is no limit (docs/population.md). On other devices it was not tried.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """A forward pass of a stack for margin losses, with the key of its dropout masks, before any way back."""

    stack: Stack
    losses: Sequence[MarginLoss]
    batch: Batch
    key: Tensor | None
    scores: Tensor
    at: StackedAt


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """A forward pass that can be split: its graph, and how networks and samples lie in its gradients."""

    passed: Pass
    graph: Graph
    layouts: list[list[StackedLayout]]

    def __repr__(self) -> str:
        return f"split backward: {len(self.graph.uses)} layers, {self.graph.bytes() / 1e6:.3g} MB of gradients kept"

    def gradients(self, penalize: Callable[[Tensor, dict[str, Tensor]], Tensor]) -> tuple[dict[int, Tensor], Tensor]:
        """The gradient of the sum of the networks' mean losses, by the id of every parameter, and those means.

        `penalize` gives the means, of differences and slopes `[networks·batch, 1]`.
        """
        loss, batch, at = self.passed.losses[0], self.passed.batch, self.passed.at
        uses = self.graph.uses
        held = [of_gradient(use.node, use.enters) for use in uses]
        retain = any(one is None and not shortcuts.saves_nothing(use.node) for one, use in zip(held, uses))
        d = differences(self.passed.scores, batch.flat(), classes=1, read_as=loss.scores)
        zeros = [at[name] for name in at]
        wanted: list[Any] = [*zeros, *(edge for use in uses for edge in use.edges)]
        ones = d.new_ones(()).expand_as(d)
        found = list(reversed(torch.autograd.grad(d, wanted, ones, retain_graph=retain, allow_unused=True)))
        q, slopes = norms.dual(loss.p), {}
        for name, zero in zip(at, zeros):
            gradient = found.pop()
            gradient = (torch.zeros_like(zero) if gradient is None else gradient).flatten(0, 1)
            slopes[name] = slope_at(name, gradient, q=q, samples=len(d))[:, None]
        d = d.detach().requires_grad_()
        means = penalize(d, slopes)
        (weights,) = torch.autograd.grad(means.sum(), d)
        factors = Factors(weights.view_as(batch.y))
        sums: dict[int, Tensor] = {}
        held.reverse()
        with torch.no_grad():
            for use, layouts in zip(uses, self.layouts, strict=True):  # what was kept and held is let go, use by use
                kept, way = [found.pop() for _ in use.outputs], held.pop()
                for leaf, gradient in use.parameter_gradients(kept, layouts, factors, way):
                    sums[id(leaf)] = sums[id(leaf)] + gradient if id(leaf) in sums else gradient
        return sums, means.detach()


class Splits:
    """Which passes of a stack can be split; what was found is remembered.

    Layouts are, for the form of the graph. And that there is no split is, for the shape of the batches: two backwards
    are always right, and need not look at the graph. Where steps are recorded as a CUDA graph, `LEAST` does not count.
    """

    def __init__(self, *, is_recorded: bool) -> None:
        self._is_recorded = is_recorded
        self._known: dict[Any, StackedLayouts | str] = {}
        self._why_not: dict[torch.Size, str] = {}

    def of(self, passed: Pass) -> Split | str:
        """How to split this forward pass, or in words why it can't be, or should not be."""
        device, shape = passed.stack.device.type, passed.batch.x.shape
        if device not in LEAST:
            return f"the split of a population was not tried on {device} yet"
        if (known := self._why_not.get(shape)) is not None:
            return known
        found = self._found(passed)
        if isinstance(found, str):
            self._why_not[shape] = found
        return found

    def _found(self, passed: Pass) -> Split | str:
        if (never := _never(passed)) is not None:
            return never
        stack, batch, scores = passed.stack, passed.batch, passed.scores
        graph = graph_of(scores, list(passed.at.values()))
        if not graph.uses:
            return "no parameter has a gradient"
        leaf, count = graph.most_used()
        if count > 2:  # each of its uses would be gone through twice
            name = next((name for name, value in stack.parameters.items() if value is leaf), "a tensor")
            return f"{name!r} is used {count} times"
        if not self._is_recorded and graph.bytes() < LEAST[stack.device.type] * len(graph.uses):
            return f"{graph.bytes() / 1e6:.3g} MB of gradients, so little that the split would take longer"
        samples = batch.y.shape[1]
        form = tuple((use.outputs, len(use.leaves)) for use in graph.uses)
        known = graph.names, form, len(stack), min(samples, FEW), batch.x.shape[2:]
        if known not in self._known:
            check_scores_and_labels(scores, batch.flat())  # here, where a label out of range has its number
            self._known[known] = tried(stack, passed.losses[0], batch, passed.key, graph)
        layouts = self._known[known]
        if isinstance(layouts, str):
            return layouts
        chosen = layouts.choose(graph, samples)
        if chosen is None:
            return f"gradients are not of {samples} samples"
        return Split(passed=passed, graph=graph, layouts=chosen)


def _never(passed: Pass) -> str | None:
    """Why the losses or the networks, as they are, rule the split out; or None."""
    of_losses = next((reason for loss in passed.losses if (reason := reasons.of_loss(loss)) is not None), None)
    if of_losses is not None:
        return of_losses
    return (
        reasons.of_classes(passed.losses[0], passed.scores)
        or reasons.of_network(passed.stack.base)
        or (None if passed.scores.grad_fn is not None else "the scores have no gradient")
    )
