"""CUDA graphs of a step of a population.

Two graphs, so that a network that is done can be removed between them:

    passes: batch, dropout keys → losses and gradients      moves: gradients, number of the step → weights

Inputs that differ from step to step are copied to the memory that the graphs read. A graph can't synchronise with the
device, so labels are checked once, before the capture, and scores that are not finite are noted with their first step.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widemargin._cuda import graphs
from widemargin.checks import check_scores_and_labels
from widemargin.population.batches import StackedBatch

if TYPE_CHECKING:
    from widemargin.population.run import PopulationRun

CHECK_EVERY = 32
"""Steps between two checks whether scores are finite; each is a device sync."""


class Graphs:
    """The graphs of `run` with its present networks, for batches of the shape of `batch`."""

    def __init__(self, run: PopulationRun, batch: StackedBatch, keys: Sequence[Tensor | None]) -> None:
        self._run, device = weakref.ref(run), run.plan.device  # no cycle, so that memory is freed at once
        self.moves_of_batches = run.plan.batch_size is not None
        self.batch = _copy(batch) if self.moves_of_batches else batch
        self.keys = [None if key is None else key.clone() for key in keys]
        self.number, self.factor = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))
        self.broken = torch.full((len(run.members),), -1.0, dtype=torch.float64, device=device)
        self.losses = torch.empty(0, device=device)
        self.gradients: dict[str, Tensor | None] = {}
        scores, labels = run.stack.last_scores, run.table.y.flatten()
        check_scores_and_labels(scores.new_zeros(()).expand(len(labels), *scores.shape[1:]), labels)
        pool = graphs.memory(device)
        self._replay_passes = graphs.capture(self._passes, pool)
        self._replay_moves = graphs.capture(self._moves, pool)

    @property
    def run(self) -> PopulationRun:
        """The run of these graphs."""
        run = self._run()
        assert run is not None
        return run

    def fits(self, batch: StackedBatch) -> bool:
        """Whether a batch has the shape that was recorded."""
        return batch.x.shape == self.batch.x.shape

    def passes(self, batch: StackedBatch, keys: Sequence[Tensor | None]) -> Tensor:
        """The losses of all networks on `batch`, `[networks]`; their gradients stay here, for `moves`."""
        if self.moves_of_batches:
            for name in ("x", "y", "index"):
                getattr(self.batch, name).copy_(getattr(batch, name))
        graphs.copy_into(self.keys, keys)
        self.number.fill_(self.run.step + 1)
        self._replay_passes()
        return self.losses

    def moves(self, factor: float) -> None:
        """The step of the optimizer along the gradients of `passes`."""
        self.run.optimizer.steps += 1
        self.number.fill_(self.run.optimizer.steps)
        self.factor.fill_(factor)
        self._replay_moves()

    def first_broken(self) -> tuple[int, int] | None:
        """The network with scores that are not finite, and the step, or None; a device sync."""
        steps = self.broken.tolist()
        row = min((row for row in range(len(steps)) if steps[row] >= 0), key=lambda row: steps[row], default=None)
        return None if row is None else (row, int(steps[row]) - 1)

    def _passes(self) -> None:
        run = self.run
        self.gradients, losses = run.objective.gradients(run.stack, self.batch, self.keys, run.streams())
        with torch.no_grad():
            bad = ~finite_networks(run.stack.last_scores, len(run.members))
            self.broken.copy_(torch.where(bad & (self.broken < 0), self.number, self.broken))
            self.losses = losses

    def _moves(self) -> None:
        optimizer = self.run.optimizer
        now = optimizer.steps, optimizer.factor
        optimizer.steps, optimizer.factor = self.number, self.factor
        try:
            optimizer.move_all(self.run.stack.trained(), self.gradients)
        finally:
            optimizer.steps, optimizer.factor = now


def finite_networks(scores: Tensor, networks: int) -> Tensor:
    """Whether all scores of a network are finite, for each of the `networks` in `scores` `[networks·batch, ...]`."""
    return torch.isfinite(scores).unflatten(0, (networks, -1)).flatten(1).all(dim=1)


def _copy(batch: StackedBatch) -> StackedBatch:
    return StackedBatch(x=batch.x.clone(), y=batch.y.clone(), index=batch.index.clone())
