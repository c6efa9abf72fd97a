"""The split backward of a population against two backwards: ratios of a step, measured in turns.

    python benchmarks/population_split.py                    # one core of a CPU, processor time
    python benchmarks/population_split.py --device cuda      # as CUDA graphs and without, wall time, peaks of memory

A hinge of margins at the input and at every layer, for small and larger networks. Both ways are taken whatever limit
the library has for it (`population.split.LEAST`). Rows are printed as they come, and written to
results/bench-population-split.json, on a GPU results/bench-population-split-cuda.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from widemargin import losses, models, population
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.data import Samples
from widemargin.population import split
from widemargin.population.conv_matmul import Convolutions
from widemargin.population.run import Plan, Run
from widemargin.training import Sgd
from widemargin.training.schedules import Constant

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, SECONDS = 5, 2.0
SMALL, LARGE = (1, 8, 8), (1, 28, 28)


def mlp(inputs: int, *widths: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), models.toy_mlp(inputs=inputs, hidden=widths[:-1], classes=widths[-1]))


def small_cnn() -> nn.Module:
    return models.mnist_cnn(size=8, widths=(8, 16), hidden=(32,))


def large_cnn() -> nn.Module:
    return models.mnist_cnn(size=28, widths=(16, 32), hidden=(64,))


def group_norm_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 49, 10),
    )  # fmt: skip


class Case(NamedTuple):
    name: str
    many: int
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    convolutions: Convolutions = "grouped"


ON_A_CPU = (
    Case("8 MLPs 64-32-32-10", 8, lambda: mlp(64, 32, 32, 10), SMALL, 32),
    Case("8 MLPs 784-100-100-10", 8, lambda: mlp(784, 100, 100, 10), LARGE, 128),
    Case("40 MLPs 784-100-100-10", 40, lambda: mlp(784, 100, 100, 10), LARGE, 128),
    Case("8 MLPs 784-512-512-10", 8, lambda: mlp(784, 512, 512, 10), LARGE, 128),
    Case("8 CNNs of 8×8 images", 8, small_cnn, SMALL, 32),
    Case("8 CNNs of 8×8 images", 8, small_cnn, SMALL, 32, "matmul"),
    Case("40 CNNs of 8×8 images", 40, small_cnn, SMALL, 32),
    Case("8 CNNs of 28×28 images", 8, large_cnn, LARGE, 32),
    Case("8 CNNs of 28×28 images", 8, large_cnn, LARGE, 32, "matmul"),
)
ON_A_GPU = (
    Case("8 MLPs 64-32-32-10", 8, lambda: mlp(64, 32, 32, 10), SMALL, 32),
    Case("64 MLPs 784-100-100-10", 64, lambda: mlp(784, 100, 100, 10), LARGE, 128),
    Case("64 MLPs 784-512-512-10", 64, lambda: mlp(784, 512, 512, 10), LARGE, 128),
    Case("400 MLPs 784-512-512-10", 400, lambda: mlp(784, 512, 512, 10), LARGE, 128),
    Case("8 CNNs of 8×8 images", 8, small_cnn, SMALL, 32, "fused"),
    Case("4 MNIST CNNs", 4, models.mnist_cnn, LARGE, 128, "fused"),
    Case("16 MNIST CNNs", 16, models.mnist_cnn, LARGE, 128, "fused"),
    Case("64 MNIST CNNs", 64, models.mnist_cnn, LARGE, 128, "fused"),
    Case("64 MNIST CNNs", 64, models.mnist_cnn, LARGE, 128, "matmul"),
    Case("64 MNIST CNNs", 64, models.mnist_cnn, LARGE, 128, "grouped"),
    Case("16 CNNs with group norm", 16, group_norm_cnn, LARGE, 128, "fused"),
    Case("16 CNNs with group norm", 16, group_norm_cnn, LARGE, 128, "grouped"),
)
TAKING = {"split": {"cpu": 0, "cuda": 0}, "two": dict[str, int]()}
"""By which limits each way is taken."""


def run(case: Case, at: tuple[str, ...], device: torch.device, *, graph: bool) -> Run:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, *case.shape, generator=generator)
    data = Samples(x, torch.randint(10, (256,), generator=generator)).to(device)
    loss = losses.MarginLoss(penalty=losses.Hinge(gamma=1.0), at=at)
    plan = Plan(
        networks=population.build(case.build, range(case.many)),
        data=[data] * case.many,
        losses=[loss] * case.many,
        optimizers=[Sgd(lr=1e-3)] * case.many,
        seeds=list(range(case.many)),
        regularizers=(),
        steps=10**9,
        batch_size=case.batch,
        schedule=Constant(),
        until=None,
        device=device,
        graph=None if graph else False,
    )
    return Run(plan, range(case.many), case.convolutions)


class Way:
    """A run that is stepped through by one of the two ways, with the time that its steps took."""

    def __init__(self, name: str, of: Run) -> None:
        self.name, self.run, self.seconds = name, of, list[float]()
        self.on_gpu = of.plan.device.type == "cuda"
        self.peak: int | None = None

    def step(self) -> float:
        split.LEAST = TAKING[self.name]
        clock = time.perf_counter if self.on_gpu else time.process_time
        start = clock()
        self.run.advance(lambda *_: None)
        if self.on_gpu:
            torch.cuda.synchronize()
        return clock() - start

    def warm_up(self) -> float:
        """The first steps, of which the fourth records a graph, and the time of the last one.

        The peak is of the second one, beyond what lies in memory before it: the first brings the workspaces of cuBLAS.
        """
        self.step()
        before = torch.cuda.memory_allocated() if self.on_gpu else 0
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        took = self.step()
        if self.on_gpu:
            self.peak = torch.cuda.max_memory_allocated() - before
            took = [self.step() for _ in range(4)][-1]
        return took


def measured(case: Case, at: tuple[str, ...], device: torch.device, *, graph: bool) -> dict[str, Any]:
    """The median over rounds of the ratio of medians; ways take turns, step by step."""
    ways = []
    for name in TAKING:
        ways.append(Way(name, run(case, at, device, graph=graph)))
        took = ways[-1].warm_up()
    steps = max(2, min(60, int(SECONDS / (2 * took) / ROUNDS)))
    ratios = []
    for _ in range(ROUNDS):
        turn: dict[str, list[float]] = {way.name: [] for way in ways}
        for _ in range(steps):
            for way in ways:
                turn[way.name].append(way.step())
        ratios.append(statistics.median(turn["split"]) / statistics.median(turn["two"]))
        for way in ways:
            way.seconds += turn[way.name]
    said = ways[0].run.backward or ""
    assert said.startswith("split backward"), said
    assert not graph or all(way.run.was_recorded for way in ways)
    layers, megabytes = (float(words.split()[0]) for words in said.removeprefix("split backward: ").split(", "))
    found = {
        "ratio": statistics.median(ratios),
        "from": min(ratios),
        "to": max(ratios),
        "milliseconds": {way.name: 1e3 * statistics.median(way.seconds) for way in ways},
        "MB a layer": megabytes / layers,
    }
    return found | ({"peak MB": {way.name: way.peak / 1e6 for way in ways if way.peak}} if ways[0].on_gpu else {})


def row(case: Case, device: torch.device) -> dict[str, Any]:
    kinds = (nn.Conv2d, nn.Linear, nn.MaxPool2d)
    layers = tuple(name for name, module in case.build().named_modules() if isinstance(module, kinds))
    everywhere = ("input", *layers)
    found = {}
    for where, at in (("input", ("input",)), ("all", everywhere)):
        found[where] = measured(case, at, device, graph=device.type == "cuda")
    if device.type == "cuda":
        found["all, without a graph"] = measured(case, everywhere, device, graph=False)
    return {"networks": case.name, "batch": case.batch, "convolutions": case.convolutions, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="a file, by default in results/")
    given = parser.parse_args()
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = on_gpu  # as cuDNN's convolutions do by default
    limit, rows = split.LEAST[device.type], list[dict[str, Any]]()
    for case in ON_A_GPU if on_gpu else ON_A_CPU:
        rows.append(row(case, device))
        ways = [found for found in rows[-1].values() if isinstance(found, dict)]
        each = ways[0]["MB a layer"]
        ratios = ", ".join(f"{found['ratio']:.2f}" for found in ways)
        peaks = f", peak {ways[1]['peak MB']}" if on_gpu else ""
        label = f"{case.name}, batch {case.batch}, {case.convolutions}"
        print(f"{label}: {ratios}; {each:.2g} MB a layer{peaks}", flush=True)
        write_json(
            given.out or ROOT / f"results/bench-population-split{'-cuda' if on_gpu else ''}.json",
            {"what": "a step by the split, relative to two backwards", "limit, bytes a layer": limit, "rows": rows}
            | {"threads": 1, **provenance(device.type)},
        )


if __name__ == "__main__":
    main()
