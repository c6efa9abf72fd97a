"""Measurement of the rows of the benchmark, written to a file after every row."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from step_cost.cases import Case, cases
from step_cost.fit import LABEL, measure_fit
from step_cost.methods import Methods, Step
from step_cost.settings import Settings
from step_cost.timing import finish, in_turns, peak_bytes, ratios
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance

GOALS = {
    "margin_backward": "1.10 where samples do not mix (arithmetic alone: 1), else 4/3, the limit of two backwards",
    "margin_backward, peak": "1.15 for WRN-28-10",
    "with cross-entropy": "1.36 (4/3 is the limit)",
    "class chosen by a probe, 1000 classes": "1.7",
    "all classes estimated, m = 3, 1000 classes": "2.1",
    "Jacobian regularizer": "0.8 of a backward per class",
    "WideMargin": "2.35 (7/3 is the limit), peak 1.9",
    "WideMargin, share 1/8": "1.25, peak 1.3",
    "MNIST CNN in a CUDA graph": "1.5 of cross-entropy's graph, and 5 times faster than without",
}


RECORDED = "cross-entropy, CUDA graph"


def run(settings: Settings, output: Path, *, on_row: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Measure every row, in turns within a row, and return what was written to `output`.

    A method that raises, or a network whose package is missing, is listed under `failed` of its row. Rows that would
    begin after `settings.minutes` are listed under `left out`. `on_row` is called with every finished row.
    """
    threads, flags = torch.get_num_threads(), (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32)
    matmul = torch.backends.cuda.matmul.allow_tf32
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
        result: dict[str, Any] = {}
        for label, row in _all(settings):
            if settings.only not in label:
                continue
            if time.monotonic() - began > 60 * settings.minutes:
                left_out.append(label)
            else:
                rows.append(row())
                if on_row is not None:
                    on_row(rows[-1])
            result = {
                "goals": GOALS,
                "rows": rows,
                "left out": left_out,
                "rounds": settings.rounds,
                "steps of a turn": settings.steps,
                "threads": 1,
                "load average before and after": [load, os.getloadavg()[0]],
                **provenance(settings.device),
            }
            write_json(output, result)
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = flags
        torch.backends.cuda.matmul.allow_tf32 = matmul
    if not result:
        raise ValueError(f"only is {settings.only!r}, expected a part of the label of a row")
    return result


def _all(settings: Settings) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the label of every row, and the function that measures it."""
    if settings.on_gpu:
        yield LABEL, lambda: measure_fit(settings)
    for case in cases(settings):
        yield case.label, functools.partial(measure_row, case, settings)


def measure_row(case: Case, settings: Settings) -> dict[str, Any]:
    """One row: for every method the milliseconds of a step, its ratio to the base, and on a GPU its peak memory.

    Methods recorded as CUDA graphs also have their ratio to cross-entropy recorded as a CUDA graph.
    """
    row: dict[str, Any] = {
        "label": case.label,
        "network": {"name": case.network, "classes": case.classes, **case.build},
        "precision": case.precision,
        "batch": case.batch,
        "places": list(case.places),
    }
    torch.manual_seed(0)
    try:
        network = case.make().to(settings.device).train()
    except ImportError as error:
        return {**row, "failed": {case.network: str(error)}}
    x = torch.rand(case.batch, *case.shape).to(settings.device)
    y = torch.randint(case.classes, (case.batch,)).to(settings.device)
    if settings.on_gpu and x.ndim == 4:  # the fastest layout of convolutions, for every method
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    methods = Methods(case, network, x, y)
    steps, failed = _working_steps(methods, network, (case.base, *case.methods))
    if case.base not in steps:
        return {**row, "failed": failed}
    turns = {name: _turn(network, step, settings) for name, step in steps.items()}
    seconds = in_turns(turns, settings.device, settings.rounds)
    times = ratios(seconds, case.base)
    row["milliseconds"] = {name: 1e3 * took / settings.steps for name, took in times["seconds"].items()}
    row["ratio"] = times["ratio"]
    if RECORDED in steps:
        graphs = {name: took for name, took in seconds.items() if name.endswith("CUDA graph")}
        row["ratio of graphs"] = ratios(graphs, RECORDED)["ratio"]
    row["said"], row["failed"] = methods.reports, failed
    if settings.on_gpu:
        peaks = {}
        for name, step in steps.items():
            if not name.endswith("CUDA graph"):  # a graph allocates its memory when it is recorded
                network.zero_grad(set_to_none=True)
                peaks[name] = peak_bytes(step, settings.device)
        row["peak MiB"] = {name: peak / 2**20 for name, peak in peaks.items()}
        row["peak ratio"] = {name: peak / peaks[case.base] for name, peak in peaks.items()}
    return row


def _working_steps(
    methods: Methods, network: nn.Module, names: tuple[str, ...]
) -> tuple[dict[str, Step], dict[str, str]]:
    """The steps that run, each tried once, and the error messages of the others."""
    steps, failed = {}, {}
    for name in names:
        network.zero_grad(set_to_none=True)
        try:
            step = methods.step(name)
            step()
        except (RuntimeError, ValueError) as error:  # no second derivative or no memory: the other methods go on
            failed[name] = str(error).splitlines()[0]
        else:
            steps[name] = step
    return steps, failed


def _turn(network: nn.Module, step: Step, settings: Settings) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(settings.steps):
            network.zero_grad(set_to_none=True)
            step()
        finish(settings.device)

    return turn
