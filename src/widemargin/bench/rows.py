"""Run the rows of the benchmark, and write what is known after each of them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.bench.cases import Case, cases
from widemargin.bench.fitting import LABEL, fitted
from widemargin.bench.settings import Settings
from widemargin.bench.timing import finish, in_turns, peak_bytes, ratios
from widemargin.bench.ways import Step, Ways

GOALS = {
    "margin_backward": "1.10 where samples do not mix (arithmetic alone: 1), else 4/3, the limit of two backwards",
    "margin_backward, peak": "1.15 for WRN-28-10",
    "with cross-entropy": "1.36 (4/3 is the limit)",
    "class chosen by a probe, 1000 classes": "1.7",
    "all classes estimated, m = 3, 1000 classes": "2.1",
    "Jacobian regularizer": "0.8 of a backward per class",
    "MNIST CNN in a CUDA graph": "1.5 of cross-entropy's graph, and 5 times faster than without",
}


RECORDED = "cross-entropy, CUDA graph"


def run(settings: Settings, output: Path, *, told: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Measure every row, in turns within a row, and return all that was written to `output`.

    A way that fails is a line of its row (`failed`), and so is a network that is not installed; rows that would begin
    after `settings.minutes` are named in `left out`. `told` is called with every row when it is done.
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
                if told is not None:
                    told(rows[-1])
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
        raise ValueError(f"only is {settings.only!r}, which no row's label has in it")
    return result


def _all(settings: Settings) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The label of every row, and what measures it."""
    if settings.on_gpu:
        yield LABEL, lambda: fitted(settings)
    for case in cases(settings):
        yield case.label, functools.partial(measured, case, settings)


def measured(case: Case, settings: Settings) -> dict[str, Any]:
    """One row: milliseconds of a step, its ratio to the base, and on a GPU its peak of memory, for every way.

    Ways that were recorded as CUDA graphs have their ratios to cross-entropy as one, beside those to the base.
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
    if settings.on_gpu and x.ndim == 4:  # the layout in which convolutions are fastest, for every way alike
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    ways = Ways(case, network, x, y)
    steps, failed = _that_work(ways, network, (case.base, *case.ways))
    if case.base not in steps:
        return {**row, "failed": failed}
    turns = {name: _turn(network, step, settings) for name, step in steps.items()}
    taken = in_turns(turns, settings.device, settings.rounds)
    times = ratios(taken, case.base)
    row["milliseconds"] = {name: 1e3 * took / settings.steps for name, took in times["seconds"].items()}
    row["ratio"] = times["ratio"]
    if RECORDED in steps:
        graphs = {name: took for name, took in taken.items() if name.endswith("CUDA graph")}
        row["ratio of graphs"] = ratios(graphs, RECORDED)["ratio"]
    row["said"], row["failed"] = ways.said, failed
    if settings.on_gpu:
        peaks = {}
        for name, step in steps.items():
            if not name.endswith("CUDA graph"):  # whose memory was taken when it was recorded
                network.zero_grad(set_to_none=True)
                peaks[name] = peak_bytes(step, settings.device)
        row["peak MiB"] = {name: peak / 2**20 for name, peak in peaks.items()}
        row["peak ratio"] = {name: peak / peaks[case.base] for name, peak in peaks.items()}
    return row


def _that_work(ways: Ways, network: nn.Module, names: tuple[str, ...]) -> tuple[dict[str, Step], dict[str, str]]:
    """The steps that can be taken, each tried once, and in words why the others can't."""
    steps, failed = {}, {}
    for name in names:
        network.zero_grad(set_to_none=True)
        try:
            step = ways.step(name)
            step()
        except (RuntimeError, ValueError) as error:  # no second derivative, no memory: the other ways go on
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
