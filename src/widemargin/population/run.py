"""The training of some networks of a population as one stack.

On a GPU a step is replayed from two CUDA graphs, so that a network that is done can be removed between them: the passes
leave losses and gradients, the moves of the optimizer change the weights. Scores that are not finite are noted in the
graph with their first step, since a check in every step would wait for the device.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from widemargin._cuda import graphs
from widemargin.data import Samples
from widemargin.losses.protocol import Loss, turns_of
from widemargin.modules import fewest_samples
from widemargin.population import rng
from widemargin.population.batches import StackedBatch, StackedData
from widemargin.population.conv_matmul import Convolutions
from widemargin.population.objective import Objective
from widemargin.population.optimizers import Value, stacked
from widemargin.population.stack import Stack
from widemargin.training.batches import Split
from widemargin.training.config import Regularizer
from widemargin.training.schedules import Schedule, factor_of
from widemargin.training.stopping import TrainingStopped, bad_row

CHECK_EVERY = 32
"""Steps of a CUDA graph between two checks whether scores are finite; each is a device sync."""


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


class NetworkResult(NamedTuple):
    """A trained network, its number of steps, and the loss of its last batch."""

    network: nn.Module
    steps: int
    loss: float


class PopulationRun:
    """The networks `members`, stacked, at step `step`; `results` has those that are done."""

    def __init__(self, plan: PopulationConfig, members: Sequence[int], convolutions: Convolutions = "grouped") -> None:
        self.plan, self.members, self.step = plan, list(members), 0
        self.results: dict[int, NetworkResult] = {}
        self.stack = Stack([plan.networks[k] for k in members], plan.device, convolutions=convolutions)
        seeds = [plan.seeds[k] for k in members]
        split = None if plan.batch_size is None else Split(plan.batch_size, fewest_samples(self.stack.base))
        self.table = StackedData([plan.data[k] for k in members], seeds, split)
        self.no_cuda_graph = "cuda_graph is False" if plan.cuda_graph is False else graphs.why_not(plan.device)
        turns = _turns([plan.losses[k] for k in members])
        each = {tuple(map(id, losses)): losses for losses in turns}  # equal turns have one objective
        self.turns = [list(each).index(tuple(map(id, losses))) for losses in turns]
        self.objectives = [
            Objective(
                losses,
                plan.regularizers,
                self.table.size,
                plan.device,
                at_once=self.no_cuda_graph is None,
                gradient_clip=plan.gradient_clip,
            )
            for losses in each.values()
        ]
        self.optimizer = stacked([plan.optimizers[k] for k in members], plan.device)
        self.optimizer.start(self.stack.trained())
        self.keys = [rng.keys(seeds, "dropout", k).to(plan.device) for k in range(1 + len(plan.regularizers))]
        self.losses = torch.full((len(seeds),), torch.nan, device=plan.device)
        self.not_finite_at = torch.full((len(seeds),), -1.0, dtype=torch.float64, device=plan.device)
        # The numbers of a step that CUDA graphs read.
        self.number, self.factor = (torch.zeros((), dtype=torch.float64, device=plan.device) for _ in range(2))
        self.captured: list[tuple[graphs.CapturedStep, graphs.CapturedStep]] = []  # of every objective
        self.was_recorded = False

    def train(self, on_step: Callable[[int], None]) -> dict[int, NetworkResult]:
        """All steps, each followed by `on_step(step)`, and the results of all members."""
        while self.step < self.plan.steps and self.members:
            self.advance()
            on_step(self.step)
        self._check_finite()
        self._finish(range(len(self.members)))
        return self.results

    def advance(self) -> None:
        """One step of all networks; those with a loss below `until` before it are done, and removed."""
        moves = self._run_passes()
        left = None
        if self.plan.until is not None:
            below = self.losses < self.plan.until
            if bool(below.any()):
                left = (~below).nonzero().flatten()
                self._finish(below.nonzero().flatten().tolist())
        if left is None or len(left):
            factor = factor_of(self.plan.schedule, float(self.step), self.plan.steps)
            if moves is None:
                self.optimizer.step(self.stack.trained(), self.step + 1, factor)
            else:
                self.factor.fill_(factor)
                moves()
            self.step += 1
        if left is not None:
            self._keep(left)

    def close(self) -> None:
        """Free the memory of CUDA graphs, which would keep this object alive."""
        self.captured = []

    def _run_passes(self) -> graphs.CapturedStep | None:
        """Set `losses` and the gradients of this step; return the captured moves if the passes were replayed."""
        batch, plan = self.table.batch(self.step), self.plan
        self.number.fill_(self.step)
        if not self.captured and self._is_worth_it(batch):
            trained = self.stack.trained()
            pool = graphs.shared_pool(plan.device, len(self.objectives))
            self.captured = [
                (
                    graphs.CapturedStep(
                        self._passes,
                        plan.device,
                        trained.values(),
                        before_capture=lambda: graphs.check_all_labels(self.stack.last_scores, self.table.y.flatten()),
                        raise_out_of_memory=True,
                        pool=pool,
                    ),
                    graphs.CapturedStep(  # it reads the gradients of these passes
                        lambda: self.optimizer.step(trained, self.number + 1, self.factor), plan.device, warm_up=0
                    ),
                )
                for _ in self.objectives
            ]
        passes, moves = self.captured[self._turn()] if self.captured else (None, None)
        losses = (passes or self._passes)(*(() if plan.batch_size is None else batch))
        assert isinstance(losses, Tensor)
        self.losses = losses
        if passes is not None:
            self.no_cuda_graph = self.no_cuda_graph or passes.why_not
        if self.no_cuda_graph is not None:
            self.close()
            if plan.cuda_graph:
                raise RuntimeError(f"cuda_graph is True, but {self.no_cuda_graph}: expected cuda_graph=None or False")
        if passes is None or not passes.is_replayed:
            return None
        self.was_recorded = True
        if plan.until is not None or self.step % CHECK_EVERY == 0:
            self._check_finite()
        return moves

    def _passes(self, *given: Tensor) -> Tensor:
        """The losses of all networks on a batch, `[networks]`; their gradients are left in `.grad`."""
        batch = StackedBatch(*given) if given else self.table.batch(self.step)
        streams = rng.Streams(self.table.seeds, self.step, self.plan.device)
        keys = [key + self.number.long() * 1_000_003 if self.stack.dropouts else None for key in self.keys]
        try:
            losses = self.objectives[self._turn()].backward(self.stack, batch, keys, streams)
        except ValueError:  # losses refuse scores that are not finite: name the network
            for row, x in enumerate(batch.x):
                with self.stack.network(row) as network:
                    if bad_row(network, x) is not None:
                        self._stop(row, self.step)
            raise
        if streams.states and self.no_cuda_graph is None:
            self.no_cuda_graph = "a loss or regularizer is computed network by network, with generators of its own"
        if self.captured:
            is_finite = torch.isfinite(self.stack.last_scores).unflatten(0, (len(self.members), -1)).flatten(1).all(1)
            is_first = ~is_finite & (self.not_finite_at < 0)
            self.not_finite_at.copy_(torch.where(is_first, self.number, self.not_finite_at))
        return losses

    def _turn(self) -> int:
        """The number of the objective of this step."""
        return self.turns[self.step % len(self.turns)]

    def _is_worth_it(self, batch: StackedBatch) -> bool:
        """Whether steps can be recorded, this batch has the usual shape, and enough steps are left for it to pay."""
        size = min(self.plan.batch_size or self.table.size, self.table.size)
        is_long = bool(self.plan.cuda_graph) or self.plan.steps - self.step > 10 * graphs.WARM
        return self.no_cuda_graph is None and batch.x.shape[1] == size and is_long

    def _check_finite(self) -> None:
        """Raise if a CUDA graph has noted scores that are not finite."""
        noted = [(step, row) for row, step in enumerate(self.not_finite_at.tolist()) if step >= 0]
        if self.was_recorded and noted:
            self._stop(min(noted)[1], int(min(noted)[0]))

    def _finish(self, rows: Iterable[int]) -> None:
        """Add the networks in `rows`, which are done, to the results."""
        losses = self.losses.tolist()
        for row in rows:
            network = copy.deepcopy(self.plan.networks[self.members[row]])
            self.stack.write_to(row, network)
            self.results[self.members[row]] = NetworkResult(network, self.step, losses[row])

    def _keep(self, index: Tensor) -> None:
        rows = index.tolist()
        self.close()  # the graphs have the old number of networks
        self.members = [self.members[k] for k in rows]
        self.losses, self.not_finite_at = self.losses[index], self.not_finite_at[index]
        self.keys = [key[index] for key in self.keys]
        if rows:
            for part in (self.stack, self.table, self.optimizer):
                part.keep(index)
            for objective in self.objectives:
                objective.keep(index)

    def _stop(self, row: int, step: int) -> NoReturn:
        member = self.members[row]
        raise TrainingStopped(
            f"training stopped at step {step}: the scores of network {member} are not finite; try a smaller "
            f"learning rate (now {self.plan.optimizers[member].lr:g})"
        )


def _turns(losses: Sequence[Loss]) -> list[list[Loss]]:
    """The losses of all networks in successive steps, which are repeated in this order."""
    turns = [turns_of(loss) for loss in losses]
    return [[own[step % len(own)] for own in turns] for step in range(math.lcm(*map(len, turns)))]
