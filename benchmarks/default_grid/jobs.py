"""Jobs of the grid: one task, network, arm and kind of optimizer, its learning rates and seeds trained as one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from default_grid import mma
from default_grid.arms import ARMS, MMA, RATES, optimizer
from default_grid.evaluation import evaluate
from default_grid.networks import NETWORKS, WORK
from default_grid.tasks import TASKS, load
from widemargin import population
from widemargin.training import Cosine, TrainingStopped

BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Job:
    """The networks of one stack: every learning rate of the optimizer, with every seed."""

    task: str
    network: str
    arm: str
    optimizer: str
    seeds: tuple[int, ...]
    steps: int

    @property
    def members(self) -> list[tuple[float, int]]:
        """(learning rate, seed) of every network."""
        return [(lr, seed) for lr in RATES[self.optimizer] for seed in self.seeds]

    @property
    def priority(self) -> tuple[float, float]:
        """Cross-entropy and the default first, then the most expensive."""
        pixels = {"mnist": 784, "fashion-mnist": 784, "cifar10": 1024, "digits": 64}.get(TASKS[self.task].data, 8)
        arm = ARMS[self.arm]
        return arm.group, -self.steps * WORK[self.network] * (100 + pixels) * arm.cost


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where jobs run, and from which data."""

    device: str = "cpu"
    folder: Path | None = None
    convolutions: Any = "grouped"


def all_jobs(
    *, tasks: Sequence[str], networks: Sequence[str], arms: Sequence[str], seeds: Sequence[int], scale: float
) -> list[Job]:
    """The jobs of a part of the grid, in the order in which they are to run; tables have the MLP alone."""
    jobs = [
        Job(
            task=task,
            network=network,
            arm=arm,
            optimizer=family,
            seeds=tuple(seeds),
            steps=max(2, round(scale * TASKS[task].steps)),
        )
        for task in tasks
        for network in networks
        for arm in arms
        for family in RATES
        if TASKS[task].is_image or network == "mlp"
    ]
    return sorted(jobs, key=lambda job: job.priority)


def run(job: Job, place: Place) -> dict[str, Any]:
    """Train and evaluate; one line of the file of rows."""
    started = time.perf_counter()
    data = {seed: load(job.task, seed, place.folder, place.device) for seed in job.seeds}
    shape = tuple(data[job.seeds[0]][0].x.shape[1:])
    classes = TASKS[job.task].classes
    seeds = [seed for _, seed in job.members]
    built = population.build(lambda: NETWORKS[job.network](shape, classes), seeds)
    networks = [network.to(place.device) for network in built]
    trained, no_cuda_graph = _trained(job, networks, [data[seed][0] for seed in seeds], place)
    seconds = time.perf_counter() - started
    runs = []
    for (lr, seed), network in zip(job.members, trained, strict=True):
        found = {"dead": True} if network is None else evaluate(network, *data[seed])
        runs.append({"lr": lr, "seed": seed, **_rounded(found)})
    return {
        "task": job.task,
        "network": job.network,
        "arm": job.arm,
        "optimizer": job.optimizer,
        "steps": job.steps,
        "seconds": round(seconds, 1),
        "seconds with evaluation": round(time.perf_counter() - started, 1),
        "no CUDA graph": no_cuda_graph,
        "runs": runs,
    }


def _trained(
    job: Job, networks: list[nn.Module], data: list[Any], place: Place
) -> tuple[list[nn.Module | None], str | None]:
    """The trained networks, None for one that died, and why there was no CUDA graph.

    A stack stops where the scores of a network are not finite; then every network trains alone.
    """
    arm, members = ARMS[job.arm], job.members

    def fit(rows: Sequence[int]) -> tuple[list[nn.Module], str | None]:
        given, samples = [networks[k] for k in rows], [data[k] for k in rows]
        setting: dict[str, Any] = {
            "optimizer": [optimizer(job.optimizer, members[k][0], arm) for k in rows],
            "steps": job.steps,
            "batch_size": BATCH,
            "seeds": [members[k][1] for k in rows],
            "convolutions": place.convolutions,
            "device": place.device,
        }
        if job.arm == MMA:
            return mma.fit(given, samples, **setting)
        setting |= {"loss": arm.loss, "regularizers": arm.regularizers, "schedule": Cosine()}
        chunk = 1 if place.device == "cpu" else len(rows)  # grouped convolutions are slow on a CPU
        done = population.fit(given, samples, chunk=chunk, progress=False, **setting)
        return done.networks, done.no_cuda_graph

    try:
        trained, no_cuda_graph = fit(range(len(networks)))
    except TrainingStopped:
        return [_alone(fit, k) for k in range(len(networks))], "networks trained alone, since one of them died"
    return list(trained), no_cuda_graph


def _alone(fit: Callable[[Sequence[int]], tuple[list[nn.Module], str | None]], number: int) -> nn.Module | None:
    try:
        return fit([number])[0][0]
    except TrainingStopped:
        return None


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers with five digits; NaN, for a network without slopes, as None."""

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(one) for one in value]
        return (float(f"{value:.5g}") if math.isfinite(value) else None) if isinstance(value, float) else value

    return {key: short(value) for key, value in values.items()}
