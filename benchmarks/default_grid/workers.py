"""Processes that take jobs from a queue; every finished job is appended to a file at once."""

from __future__ import annotations

import json
import queue
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from default_grid.jobs import Job, Place, run
from widemargin._io.provenance import provenance


def read(file: Path) -> list[dict[str, Any]]:
    """The finished jobs of a file; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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
    end = time.time() + 60 * minutes
    context = mp.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for job in jobs:
        todo.put(job)
    for _ in range(workers):
        todo.put(None)
    processes = [context.Process(target=_worker, args=(todo, done, place, end)) for _ in range(workers)]
    for process in processes:
        process.start()
    rows.parent.mkdir(parents=True, exist_ok=True)
    known, count, started = provenance(place.device), 0, time.time()
    with rows.open("a") as file:
        while True:
            is_over = not any(process.is_alive() for process in processes)  # asked before the queue is read
            try:
                line = done.get(timeout=1)
            except queue.Empty:
                if is_over:
                    break
                continue
            count += 1
            if "error" in line:
                print(f"FAILED {line['job']}\n{line['error']}", flush=True)
                continue
            file.write(json.dumps({**line, **known}) + "\n")
            file.flush()
            accuracies = " ".join("dead" if r["dead"] else f"{100 * r['accuracy']:.1f}" for r in line["runs"])
            name = " / ".join(line[key] for key in ("task", "network", "arm", "optimizer"))
            seconds = f"{line['seconds']:.0f} + {line['seconds with evaluation'] - line['seconds']:.0f} s"
            print(f"{count}/{len(jobs)} {time.time() - started:.0f} s | {name} | {seconds} | {accuracies}", flush=True)
            if line["no CUDA graph"] and place.device != "cpu":
                print(f"    no CUDA graph: {line['no CUDA graph']}", flush=True)
    todo.cancel_join_thread()  # jobs that are left need no reader


def _worker(todo: Any, done: Any, place: Place, end: float) -> None:
    torch.set_num_threads(1)
    while (job := todo.get()) is not None and time.time() < end:
        try:
            done.put(run(job, place))
        except Exception as error:  # of one job: the others go on, unless the device is lost
            done.put({"job": repr(job), "error": traceback.format_exc()})
            if "CUDA error" in str(error):
                return
