"""The training of some networks of a population as one stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

from widemargin._cuda import graphs
from widemargin.data import Samples
from widemargin.losses.protocol import Loss
from widemargin.population import cuda_graph, rng
from widemargin.population.batches import StackedBatch, StackedData
from widemargin.population.conv_matmul import Convolutions
from widemargin.population.objective import Objective
from widemargin.population.optimizers import Value, stacked
from widemargin.population.stack import Stack
from widemargin.training.config import Regularizer
from widemargin.training.schedules import Schedule
from widemargin.training.stopping import TrainingStopped


@dataclass(frozen=True, kw_only=True, eq=False)
class PopulationConfig:
    """The checked arguments of `fit`, one of each for every network where they may differ."""

    networks: Sequence[nn.Module]
    data: Sequence[Samples]
    losses: Sequence[Loss]
    optimizers: Sequence[Value]
    seeds: Sequence[int]
    regularizers: tuple[Regularizer, ...]
    steps: int
    batch_size: int | None
    schedule: Schedule
    until: float | None
    device: torch.device
    cuda_graph: bool | None = None
    gradient_clip: float | int | None = None

    def __len__(self) -> int:
        return len(self.networks)


@dataclass(frozen=True, kw_only=True)
class NetworkResult:
    """The number of steps of a network, and the loss of its last batch."""

    steps: int
    loss: float


class PopulationRun:
    """The networks `members`, stacked, at step `step`."""

    def __init__(self, plan: PopulationConfig, members: Sequence[int], convolutions: Convolutions = "grouped") -> None:
        self.plan, self.members = plan, list(members)
        self.stack = Stack([plan.networks[k] for k in members], plan.device, convolutions=convolutions)
        seeds = [plan.seeds[k] for k in members]
        self.table = StackedData([plan.data[k] for k in members], seeds, plan.batch_size)
        losses = [plan.losses[k] for k in members]
        self.no_cuda_graph = "cuda_graph is False" if plan.cuda_graph is False else graphs.why_not(plan.device)
        self.objective = Objective(
            losses,
            plan.regularizers,
            self.table.size,
            plan.device,
            at_once=self.no_cuda_graph is None,
            gradient_clip=plan.gradient_clip,
        )
        self.optimizer = stacked([plan.optimizers[k] for k in members], plan.device)
        self.optimizer.start(self.stack.trained())
        parts = 1 + len(plan.regularizers)
        self.keys = [rng.keys(seeds, "dropout", part).to(plan.device) for part in range(parts)]
        self.step, self.losses = 0, torch.full((len(seeds),), torch.nan, device=plan.device)
        self.graphs: cuda_graph.Graphs | None = None
        self.was_recorded, self._warm = False, 0

    def advance(self, done: Callable[[int, NetworkResult], None]) -> None:
        """One step of all networks; those with a loss below `until` before it are reported to `done` and removed."""
        batch, keys = self.table.batch(self.step), self._keys()
        graphs = self._graphs(batch, keys)
        gradients = None
        if graphs is None:
            gradients, self.losses = self._gradients(batch, keys)
        else:
            self.losses = graphs.passes(batch, keys)
            if self.plan.until is not None or self.step % cuda_graph.CHECK_EVERY == 0:
                self.check_finite()
        left = None
        if self.plan.until is not None:
            below = self.losses < self.plan.until
            if bool(below.any()):
                left = (~below).nonzero().flatten()
                for row in below.nonzero().flatten().tolist():
                    done(row, NetworkResult(steps=self.step, loss=float(self.losses[row])))
        if left is None or len(left):
            factor = self.plan.schedule(float(self.step), self.plan.steps)
            if gradients is None:
                assert graphs is not None
                graphs.moves(factor)
            else:
                self.optimizer.step(self.stack.trained(), gradients, factor)
            self.step += 1
        if left is not None:
            self._keep(left)

    def check_finite(self) -> None:
        """Raise if a CUDA graph has noted scores that are not finite."""
        broken = None if self.graphs is None else self.graphs.first_broken()
        if broken is not None:
            self._stop(broken[0], broken[1])

    def streams(self) -> rng.Streams:
        """The generators of this step."""
        return rng.Streams(self.table.seeds, self.step, self.plan.device)

    def _graphs(self, batch: StackedBatch, keys: Sequence[Tensor | None]) -> cuda_graph.Graphs | None:
        """The CUDA graphs for this batch, recorded now if it is time to; None for a step without them."""
        if (
            self.no_cuda_graph is None
            and self.graphs is None
            and self._warm >= graphs.WARM
            and self._is_worth_it(batch)
        ):
            try:
                self.graphs = cuda_graph.Graphs(self, batch, keys)
                self.was_recorded = True
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.no_cuda_graph = f"the step could not be recorded: {str(error).splitlines()[0]}"
        if self.no_cuda_graph is not None and self.plan.cuda_graph:
            raise RuntimeError(f"cuda_graph is True, but {self.no_cuda_graph}: expected cuda_graph=None or False")
        return self.graphs if self.graphs is not None and self.graphs.fits(batch) else None

    def _is_worth_it(self, batch: StackedBatch) -> bool:
        """Whether this batch has the usual shape, and enough steps are left for a recording to pay."""
        size = min(self.plan.batch_size or self.table.size, self.table.size)
        return batch.x.shape[1] == size and (
            bool(self.plan.cuda_graph) or self.plan.steps - self.step > 10 * graphs.WARM
        )

    def _keys(self) -> list[Tensor | None]:
        if not self.stack.has_dropout:
            return [None] * len(self.keys)
        return [key + self.step * 1_000_003 for key in self.keys]

    def _gradients(self, batch: StackedBatch, keys: Sequence[Tensor | None]) -> tuple[dict[str, Tensor | None], Tensor]:
        streams = self.streams()
        try:
            gradients, losses = self.objective.gradients(self.stack, batch, keys, streams)
        except ValueError:  # losses refuse scores that are not finite: name the network
            self._stop_where_not_finite(batch.x)
            raise
        self._warm += 1
        if streams.used and self.no_cuda_graph is None:
            self.no_cuda_graph = "a loss or regularizer is computed network by network, with generators of its own"
        return gradients, losses

    def _keep(self, index: Tensor) -> None:
        rows = index.tolist()
        self.graphs, self._warm = None, 0  # they have the old number of networks
        self.members = [self.members[k] for k in rows]
        self.losses, self.keys = self.losses[index], [key[index] for key in self.keys]
        if rows:
            for part in (self.stack, self.table, self.objective, self.optimizer):
                part.keep(index)

    def _stop_where_not_finite(self, x: Tensor) -> None:
        with torch.no_grad(), self.stack.without_counting():
            scores, _ = self.stack.scores(x)
        bad = ~cuda_graph.finite_networks(scores, len(self.members))
        if bool(bad.any()):
            self._stop(int(bad.nonzero()[0]), self.step)

    def _stop(self, row: int, step: int) -> NoReturn:
        member = self.members[row]
        raise TrainingStopped(
            f"training stopped at step {step}: the scores of network {member} are not finite; try a smaller "
            f"learning rate (now {self.plan.optimizers[member].lr:g})"
        )
