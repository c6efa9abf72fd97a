"""Some networks of a population, trained together from their first step to their last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemargin.data import Samples
from widemargin.training.population import draws
from widemargin.training.population.batches import Table
from widemargin.training.population.convolutions import Convolutions
from widemargin.training.population.objective import Objective
from widemargin.training.population.optimizers import stacked
from widemargin.training.population.stack import Stack
from widemargin.training.schedules import Schedule
from widemargin.training.watch import TrainingStopped


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The checked arguments of `fit`, one of each for every network where they may differ."""

    networks: Sequence[nn.Module]
    data: Sequence[Samples]
    losses: Sequence[Any]
    optimizers: Sequence[Any]
    seeds: Sequence[int]
    regularizers: tuple[Any, ...]
    steps: int
    batch_size: int | None
    schedule: Schedule
    until: float | None
    device: torch.device

    def __len__(self) -> int:
        return len(self.networks)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the training of one network ended."""

    steps: int
    loss: float


class Run:
    """The networks `members` of a plan, stacked, somewhere on their way."""

    def __init__(self, plan: Plan, members: Sequence[int], convolutions: Convolutions = "grouped") -> None:
        self.plan, self.members = plan, list(members)
        self.stack = Stack([plan.networks[k] for k in members], plan.device, convolutions=convolutions)
        seeds = [plan.seeds[k] for k in members]
        self.table = Table([plan.data[k] for k in members], seeds, plan.batch_size)
        losses = [plan.losses[k] for k in members]
        self.objective = Objective(losses, plan.regularizers, self.table.size, plan.device)
        self.optimizer = stacked([plan.optimizers[k] for k in members], plan.device)
        self.optimizer.start(self.stack.trained())
        parts = 1 + len(plan.regularizers)
        self.keys = [draws.keys(seeds, "dropout", part).to(plan.device) for part in range(parts)]
        self.step, self.losses = 0, torch.full((len(seeds),), torch.nan, device=plan.device)

    def advance(self, done: Callable[[int, Ended], None]) -> None:
        """One step of all networks; those that are below `until` before it are reported to `done`, and left behind."""
        objective, losses = self._objective()
        self.losses = losses.detach()
        left = None
        if self.plan.until is not None:
            below = self.losses < self.plan.until
            if bool(below.any()):
                left = (~below).nonzero().flatten()
                for row in below.nonzero().flatten().tolist():
                    done(row, Ended(steps=self.step, loss=float(self.losses[row])))
        if left is None or len(left):
            trained = self.stack.trained()
            gradients = torch.autograd.grad(objective.sum(), list(trained.values()), allow_unused=True)
            factor = self.plan.schedule(float(self.step), self.plan.steps)
            self.optimizer.step(trained, dict(zip(trained, gradients)), factor)
            self.step += 1
        if left is not None:
            self._keep(left)

    def _objective(self) -> tuple[Tensor, Tensor]:
        batch = self.table.batch(self.step)
        streams = draws.Streams(self.table.seeds, self.step, self.plan.device)
        keys = [key + self.step * 1_000_003 for key in self.keys] if self.stack.has_dropout else [None] * len(self.keys)
        try:
            objective, loss = self.objective(self.stack, batch, keys, streams)
        except ValueError:  # losses refuse scores that are not finite: say whose they are, if that is the reason
            self._stop_where_not_finite(batch.x)
            raise
        return objective, loss

    def _keep(self, index: Tensor) -> None:
        rows = index.tolist()
        self.members = [self.members[k] for k in rows]
        self.losses, self.keys = self.losses[index], [key[index] for key in self.keys]
        if rows:
            for part in (self.stack, self.table, self.objective, self.optimizer):
                part.keep(index)

    def _stop_where_not_finite(self, x: Tensor) -> None:
        with torch.no_grad(), self.stack.without_counting():
            scores, _ = self.stack.scores(x)
        bad = ~torch.isfinite(scores).view(len(self.members), -1).all(dim=1)
        if bool(bad.any()):
            member = self.members[int(bad.nonzero()[0])]
            raise TrainingStopped(
                f"training stopped at step {self.step}: the scores of network {member} are not finite; try a smaller "
                f"learning rate (now {self.plan.optimizers[member].lr:g})"
            )
