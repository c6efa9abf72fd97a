"""The split backward of a population against two backwards, on a CPU: ratios of a step, measured in turns.

    python benchmarks/population_split.py

A hinge of margins at the input and at every layer, for small and larger networks; one core, processor time, so that
what else the machine does matters little. Both ways are taken whatever the limit below which the library takes two
backwards (`population.split.LEAST`). Written to results/bench-population-split.json.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from widemargin import losses, models
from widemargin.data import Samples
from widemargin.files import write_json
from widemargin.provenance import provenance
from widemargin.training import Sgd, population
from widemargin.training.population import split
from widemargin.training.population.convolutions import Convolutions
from widemargin.training.population.run import Plan, Run
from widemargin.training.schedules import Constant

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, SECONDS = 5, 2.0
SMALL, LARGE = (1, 8, 8), (1, 28, 28)


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def small_cnn() -> nn.Module:
    return models.mnist_cnn(size=8, widths=(8, 16), hidden=(32,))


def large_cnn() -> nn.Module:
    return models.mnist_cnn(size=28, widths=(16, 32), hidden=(64,))


Case = tuple[str, int, Callable[[], nn.Module], tuple[int, ...], int, Convolutions]
CASES: tuple[Case, ...] = (
    ("8 MLPs 64-32-32-10", 8, lambda: mlp(64, 32, 32, 10), SMALL, 32, "grouped"),
    ("8 MLPs 784-100-100-10", 8, lambda: mlp(784, 100, 100, 10), LARGE, 128, "grouped"),
    ("40 MLPs 784-100-100-10", 40, lambda: mlp(784, 100, 100, 10), LARGE, 128, "grouped"),
    ("8 MLPs 784-512-512-10", 8, lambda: mlp(784, 512, 512, 10), LARGE, 128, "grouped"),
    ("8 CNNs of 8×8 images", 8, small_cnn, SMALL, 32, "grouped"),
    ("8 CNNs of 8×8 images", 8, small_cnn, SMALL, 32, "matmul"),
    ("40 CNNs of 8×8 images", 40, small_cnn, SMALL, 32, "grouped"),
    ("8 CNNs of 28×28 images", 8, large_cnn, LARGE, 32, "grouped"),
    ("8 CNNs of 28×28 images", 8, large_cnn, LARGE, 32, "matmul"),
)


def run(case: Case, at: tuple[str, ...]) -> Run:
    _, count, build, shape, batch, form = case
    generator = torch.Generator().manual_seed(0)
    data = Samples(torch.randn(256, *shape, generator=generator), torch.randint(10, (256,), generator=generator))
    loss = losses.MarginLoss(penalty=losses.Hinge(gamma=1.0), at=at)
    plan = Plan(
        networks=population.build(build, range(count)),
        data=[data] * count,
        losses=[loss] * count,
        optimizers=[Sgd(lr=1e-3)] * count,
        seeds=list(range(count)),
        regularizers=(),
        steps=10**9,
        batch_size=batch,
        schedule=Constant(),
        until=None,
        device=torch.device("cpu"),
    )
    return Run(plan, range(count), form)


def measured(case: Case, at: tuple[str, ...]) -> dict[str, Any]:
    """The median over rounds of the ratio of medians; ways take turns, step by step."""
    runs = {way: run(case, at) for way in ("split", "two")}

    def step(way: str) -> float:
        split.DEVICES = ("cpu",) if way == "split" else ()
        start = time.process_time()
        runs[way].advance(lambda *_: None)
        return time.process_time() - start

    for _ in range(2):
        took = sum(step(way) for way in runs)
    steps = max(2, min(60, int(SECONDS / took / ROUNDS)))
    ratios, times = [], {way: list[float]() for way in runs}
    for _ in range(ROUNDS):
        turn: dict[str, list[float]] = {way: [] for way in runs}
        for _ in range(steps):
            for way in runs:
                turn[way].append(step(way))
        ratios.append(statistics.median(turn["split"]) / statistics.median(turn["two"]))
        for way, values in turn.items():
            times[way] += values
    said = runs["split"].backward or ""
    assert said.startswith("split backward"), said
    layers, megabytes = (float(words.split()[0]) for words in said.removeprefix("split backward: ").split(", "))
    return {
        "ratio": statistics.median(ratios),
        "from": min(ratios),
        "to": max(ratios),
        "milliseconds": {way: 1e3 * statistics.median(values) for way, values in times.items()},
        "MB a layer": megabytes / layers,
    }


def main() -> None:
    torch.set_num_threads(1)
    limit, split.LEAST = split.LEAST, 0
    rows = []
    for case in CASES:
        name, _, build, _, batch, form = case
        kinds = (nn.Conv2d, nn.Linear, nn.MaxPool2d)
        layers = tuple(name for name, module in build().named_modules() if isinstance(module, kinds))
        found = {where: measured(case, at) for where, at in (("input", ("input",)), ("all", ("input", *layers)))}
        rows.append({"networks": name, "batch": batch, "convolutions": form, **found})
        each = found["input"]["MB a layer"]
        print(f"{name}, batch {batch}, {form}: {[round(one['ratio'], 2) for one in found.values()]}, {each:.2g} MB")
    write_json(
        ROOT / "results/bench-population-split.json",
        {"what": "a step by the split, relative to two backwards", "limit, bytes a layer": limit, "rows": rows}
        | {"threads": 1, **provenance("cpu")},
    )


if __name__ == "__main__":
    main()
