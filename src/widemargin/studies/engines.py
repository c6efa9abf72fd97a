"""Engines that run trials: one by one, as populations, by several processes, or on Ray, with the same rows."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, Literal, TypeAlias

from widemargin._io.optional import import_optional
from widemargin.studies import tasks
from widemargin.studies.rows import Row
from widemargin.studies.trial import Trial, TrialContext

EngineName = Literal["one-by-one", "population", "workers", "ray"]
Done: TypeAlias = tuple[Trial, Row, float]
"""A trial, what it measured, and the seconds it took (its share of them, where several ran together)."""

AT_ONCE = 64
"""So many trials at most make a population: what is not finished is lost when a run is killed."""


def one_by_one(trials: Sequence[Trial], context: TrialContext) -> Iterator[Done]:
    """In this process, in their order."""
    for trial in trials:
        yield timed(trial, context)


def populations(trials: Sequence[Trial], context: TrialContext, at_once: int = AT_ONCE) -> Iterator[Done]:
    """Those that can train together do; the others run one by one."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        task = tasks.find(trial.task)
        alike = task.alike(trial) if isinstance(task, tasks.ManyTask) else trial.key
        groups.setdefault(f"{trial.task} {alike}", []).append(trial)
    for group in groups.values():
        for first in range(0, len(group), at_once):
            part = group[first : first + at_once]
            task = tasks.find(part[0].task)
            if len(part) == 1 or not isinstance(task, tasks.ManyTask):
                yield from one_by_one(part, context)
                continue
            start = time.monotonic()
            rows = list(task.many(part, context))
            share = (time.monotonic() - start) / len(part)
            yield from ((trial, row, share) for trial, row in rows)


def workers(trials: Sequence[Trial], context: TrialContext, count: int) -> Iterator[Done]:
    """By `count` processes, which share a GPU where there is one: the cheap way to fill it with small trainings.

    At most `count` trials are under way, so that whoever stops asking does not wait for the others.
    """
    waiting = iter(trials)
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_one_thread) as pool:
        running: set[Future[Done]] = {pool.submit(timed, t, context) for t in itertools.islice(waiting, count)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    running |= {pool.submit(timed, t, context) for t in itertools.islice(waiting, 1)}
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def on_ray(trials: Sequence[Trial], context: TrialContext, address: str | None, gpus: float) -> Iterator[Done]:
    """On Ray, here or on the cluster at `address`; each trial takes one processor and `gpus` of a GPU."""
    ray = import_optional("ray", "--engine ray")
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    remote: Any = ray.remote(num_cpus=1, num_gpus=gpus)(timed)
    running = [remote.remote(trial, context) for trial in trials]
    try:
        while running:
            done, running = ray.wait(running, num_returns=1)
            yield ray.get(done[0])
    finally:
        for one in running:
            ray.cancel(one, force=True)


def timed(trial: Trial, context: TrialContext) -> Done:
    """One trial and its seconds."""
    start = time.monotonic()
    row = tasks.find(trial.task).run(trial, context)
    return trial, row, time.monotonic() - start


def engine(
    name: EngineName, *, count: int = 1, address: str | None = None, device: str = "cpu"
) -> Callable[[Sequence[Trial], TrialContext], Iterator[Done]]:
    """The engine of that name."""
    if name == "one-by-one":
        return one_by_one
    if name == "population":
        return populations
    if name == "workers":
        return lambda trials, context: workers(trials, context, count)
    if name == "ray":
        share = 1 / count if device.startswith("cuda") else 0.0
        return lambda trials, context: on_ray(trials, context, address, share)
    raise ValueError(f"engine is {name!r}, expected one-by-one, population, workers or ray")


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
