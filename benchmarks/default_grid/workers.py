"""The jobs of the grid in processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import job_rows
from default_grid.jobs import Job, Place, run


def missing(jobs: Iterable[Job], lines: Sequence[dict[str, Any]]) -> list[Job]:
    """The jobs that are not in `lines`, with the seeds that are not."""
    seen: dict[tuple[Any, ...], set[int]] = {}
    for line in lines:
        key = line["task"], line["network"], line["arm"], line["optimizer"], line["steps"]
        seen.setdefault(key, set()).update(run["seed"] for run in line["runs"])
    left = []
    for job in jobs:
        done = seen.get((job.task, job.network, job.arm, job.optimizer, job.steps), set())
        if seeds := tuple(seed for seed in job.seeds if seed not in done):
            left.append(replace(job, seeds=seeds))
    return left


def work(jobs: Sequence[Job], place: Place, rows: Path, *, workers: int, minutes: float) -> None:
    """Run the jobs in `workers` processes; none starts later than `minutes` from now."""
    told = partial(_told, place)
    job_rows.work(partial(_rows, place), jobs, rows, device=place.device, workers=workers, minutes=minutes, told=told)


def _rows(place: Place, job: Job) -> list[dict[str, Any]]:
    return [run(job, place)]


def _told(place: Place, row: dict[str, Any]) -> str:
    accuracies = " ".join("dead" if r["dead"] else f"{100 * r['accuracy']:.1f}" for r in row["runs"])
    name = " / ".join(row[key] for key in ("task", "network", "arm", "optimizer"))
    seconds = f"{row['seconds']:.0f} + {row['seconds with evaluation'] - row['seconds']:.0f} s"
    reason = row["no CUDA graph"] if place.device != "cpu" else None
    return f"{name} | {seconds} | {accuracies}" + (f" | no CUDA graph: {reason}" if reason else "")
