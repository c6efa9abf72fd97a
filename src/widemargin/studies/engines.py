"""Engines that run trials: one by one, as populations, by several processes, or on Ray, with the same rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, Protocol, runtime_checkable

from widemargin.studies import tasks
from widemargin.studies.ray_cluster import on_ray
from widemargin.studies.trial import Claim, Trial, TrialContext, unclaimed
from widemargin.studies.workers import Done, timed, workers

EngineName = Literal["one-by-one", "population", "workers", "ray"]


@runtime_checkable
class Engine(Protocol):
    """Runs the trials that it can claim, each claimed right before it starts."""

    def __call__(self, trials: Sequence[Trial], context: TrialContext, claim: Claim = ...) -> Iterator[Done]:
        """Run the trials."""


AT_ONCE = 64
"""Maximum number of trials per population; unfinished ones are lost if the run is killed."""


def one_by_one(trials: Sequence[Trial], context: TrialContext, claim: Claim = unclaimed) -> Iterator[Done]:
    """Run trials one by one in this process."""
    for trial in trials:
        if claim(trial):
            yield timed(trial, context)


def populations(
    trials: Sequence[Trial], context: TrialContext, claim: Claim = unclaimed, at_once: int = AT_ONCE
) -> Iterator[Done]:
    """Run trials that can train together as populations, and the others one by one."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        task = tasks.find(trial.task)
        alike = task.alike(trial) if isinstance(task, tasks.ManyTask) else trial.key
        groups.setdefault(f"{trial.task} {alike}", []).append(trial)
    for group in groups.values():
        for first in range(0, len(group), at_once):
            task = tasks.find(group[0].task)
            if len(group) == 1 or not isinstance(task, tasks.ManyTask):
                yield from one_by_one(group[first : first + at_once], context, claim)
                continue
            part = [trial for trial in group[first : first + at_once] if claim(trial)]
            if not part:
                continue
            start = time.monotonic()
            rows = list(task.many(part, context))
            share = (time.monotonic() - start) / len(part)
            yield from ((trial, row, share) for trial, row in rows)


def engine(name: EngineName, *, count: int = 1, address: str | None = None, device: str = "cpu") -> Engine:
    """The engine of that name."""
    if name == "one-by-one":
        return one_by_one
    if name == "population":
        return populations
    if name == "workers":
        return partial(workers, count=count)
    if name == "ray":
        return partial(on_ray, address=address, gpus=1 / count if device.startswith("cuda") else 0.0)
    raise ValueError(f"engine is {name!r}, expected one-by-one, population, workers or ray")
