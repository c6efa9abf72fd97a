"""Jobs in processes, with a row of plain values appended to a file as soon as one is finished.

`work` takes any jobs. Of the other functions a job is a dictionary of plain values; a row has the same entries, and is
not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import queue
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from widemargin._io.provenance import provenance

Job = dict[str, Any]
Run = Callable[[Job, str, Path | None], Iterable[dict[str, Any]]]
"""(job, device, folder of the data) → its rows."""


def options(description: str | None, rows: Path, out: Path) -> argparse.ArgumentParser:
    """A parser with the options of all programs of this kind; a program adds those of its jobs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "summary"), default="run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no job later than this")
    parser.add_argument("--rows", type=Path, nargs="+", default=[rows], help="file of finished jobs; summary: several")
    parser.add_argument("--out", type=Path, default=out, help="of summary")
    return parser


def run_or_summarise(
    given: argparse.Namespace,
    *,
    jobs: Iterable[Job],
    run: Run,
    summarise: Callable[[list[dict[str, Any]]], None],
) -> None:
    """What the values of `options` ask for: run the jobs that have no row, or summarise the rows.

    Jobs that fail end the program with an error.
    """
    rows = [row for file in given.rows for row in read(file)]
    if given.command == "summary":
        summarise(rows)
        return
    left = missing(jobs, rows)
    print(f"{len(left)} jobs", flush=True)
    workers = min(given.workers, max(1, len(left)))
    rows_of = partial(_rows_of, run, given.device, given.data)
    if failed := work(rows_of, left, given.rows[0], device=given.device, workers=workers, minutes=given.minutes):
        raise SystemExit(f"{failed} jobs failed")


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a file; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def missing(jobs: Iterable[Job], rows: Sequence[dict[str, Any]]) -> list[Job]:
    """The jobs that have no row."""
    return [job for job in jobs if not any(all(row.get(k) == v for k, v in job.items()) for row in rows)]


def work(
    run: Callable[[Any], Iterable[dict[str, Any]]],
    jobs: Sequence[Any],
    file: Path,
    *,
    device: str,
    workers: int,
    minutes: float,
    told: Callable[[dict[str, Any]], object] = lambda row: row.pop("shown", row),
) -> int:
    """Run the jobs; none starts later than `minutes` from now. The number of those that failed.

    `run` gives the rows of a job, `told` what is printed of a row.
    """
    if not jobs:
        return 0
    end = time.time() + 60 * minutes
    context = mp.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for job in [*jobs, *[None] * workers]:
        todo.put(job)
    processes = [context.Process(target=_worker, args=(run, todo, done, end)) for _ in range(workers)]
    for process in processes:
        process.start()
    file.parent.mkdir(parents=True, exist_ok=True)
    known, started, count, failed = provenance(device), time.time(), 0, 0
    with file.open("a") as rows:
        while True:
            is_over = not any(process.is_alive() for process in processes)  # asked before the queue is read
            try:
                found = done.get(timeout=1)
            except queue.Empty:
                if is_over:
                    break
                continue
            if "error" in found:
                failed += 1
                print(f"FAILED {found['job']}\n{found['error']}", flush=True)
                continue
            count += 1
            shown = told(found)
            rows.write(json.dumps({**found, **known}) + "\n")
            rows.flush()
            print(f"{count} rows, {time.time() - started:.0f} s | {shown}", flush=True)
    todo.cancel_join_thread()  # jobs that are left need no reader
    return failed


def _worker(run: Callable[[Any], Iterable[dict[str, Any]]], todo: Any, done: Any, end: float) -> None:
    torch.set_num_threads(1)
    parent = mp.parent_process()
    while (job := todo.get()) is not None and time.time() < end and (parent is None or parent.is_alive()):
        try:
            for row in run(job):
                done.put(row)
        except Exception as error:  # of one job: the others go on, unless the device is lost
            done.put({"job": repr(job), "error": traceback.format_exc()})
            if "CUDA error" in str(error):
                return


def _rows_of(run: Run, device: str, folder: Path | None, job: Job) -> Iterator[dict[str, Any]]:
    for row in run(job, device, folder):
        yield {**job, **_rounded(row)}


def _rounded(value: Any) -> Any:
    """Numbers with six digits; None for those that are not finite."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return (float(f"{value:.6g}") if math.isfinite(value) else None) if isinstance(value, float) else value
