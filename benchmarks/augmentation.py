"""`WideMargin` with randomly shifted and mirrored images, over its strength.

    python benchmarks/augmentation.py --data FOLDER --workers 2   # runs/augmentation.jsonl, an hour on two cores
    python benchmarks/augmentation.py summary                     # results/wide-margin-augmentation.json, the table

Images are averaged to half their size and standardised; batches of 64, a cosine schedule. Nothing is selected. Strength
0 is cross-entropy, None the default, which knows that images are augmented; the other strengths do not.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import widemargin as wm
from default_grid.networks import NETWORKS
from default_grid.tasks import load_images
from job_rows import Job, options, run_or_summarise
from widemargin import losses, training
from widemargin._io.files import write_json
from widemargin.data import Samples

ROWS, OUT = Path("runs/augmentation.jsonl"), Path("results/wide-margin-augmentation.json")
SEEDS, TEST, BATCH = (0, 1, 2), 2000, 64
STRENGTHS = {True: (0.0, None, 0.1, 1.0), False: (0.0, 0.1, 1.0)}
SGD, ADAM = training.SGD(lr=0.03, momentum=0.9), training.AdamW(lr=1e-3, weight_decay=0.0)
OPTIMIZERS: dict[str, Any] = {"mlp": SGD, "cnn": SGD, "resnet-bn": SGD, "vit": ADAM}


@dataclass(frozen=True, kw_only=True)
class Task:
    """`train` images of `data`, a share `flips` of them with another label, with or without augmentation (`augmented`).

    Augmented images are shifted by up to `crop` pixels and mirrored if `mirror`.
    """

    data: str
    train: int
    steps: int
    networks: tuple[str, ...]
    flips: float = 0.0
    crop: int = 2
    mirror: bool = False
    augmented: tuple[bool, ...] = (True, False)


THREE = ("cnn", "resnet-bn", "vit")
FEW: dict[str, Any] = {"data": "cifar10", "train": 2250, "mirror": True}
FLIPPED: dict[str, Any] = {"data": "mnist", "train": 2000, "flips": 0.4, "networks": ("mlp", "cnn")}
TASKS = {
    "CIFAR-10, 2,250": Task(steps=780, networks=THREE, **FEW),
    "CIFAR-10, 2,250, only mirrored": Task(steps=780, networks=THREE, crop=0, augmented=(True,), **FEW),
    "CIFAR-10, 2,250, longer": Task(steps=2400, networks=("resnet-bn",), **FEW),
    "Fashion-MNIST, 2,000": Task(data="fashion-mnist", train=2000, steps=600, networks=("cnn", "resnet-bn")),
    "MNIST, 2,000, 40 % flips": Task(steps=900, **FLIPPED),
    "MNIST, 2,000, 40 % flips, longer": Task(steps=2700, augmented=(True,), **FLIPPED),
}


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(__doc__, ROWS, OUT).parse_args(arguments)
    jobs = [
        {"seed": seed, "task": name, "network": network, "augmented": augmented, "strength": strength}
        for seed, (name, task), augmented in itertools.product(SEEDS, TASKS.items(), STRENGTHS)
        if augmented in task.augmented
        for network, strength in itertools.product(task.networks, STRENGTHS[augmented])
    ]
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out))


def run(job: Job, device: str, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Train and evaluate one network."""
    task = TASKS[job["task"]]
    train, test = (part.to(device) for part in samples(job["task"], job["seed"], folder))
    torch.manual_seed(job["seed"])
    network = NETWORKS[job["network"]](tuple(train.x.shape[1:]), 10).to(device)
    known = {} if job["strength"] is None else {"strength": job["strength"], "augmented": False}
    loss: losses.Loss = losses.WideMargin(**known)
    wm.fit(
        network,
        train,
        loss=losses.CropsAndFlips(loss=loss, crop=task.crop, flip=task.mirror) if job["augmented"] else loss,
        epochs=max(1, round(task.steps / -(-len(train) // BATCH))),
        optimizer=OPTIMIZERS[job["network"]],
        schedule=training.Cosine(),
        batch_size=BATCH,
        seed=job["seed"],
        devices=training.Devices(accelerator=torch.device(device).type, count=1),
        callbacks=(),
    )
    measured = wm.measure(network, test, progress=False)
    margins = measured.margins["input"]
    yield {
        "test": measured.accuracy,
        "train": wm.measure(network, train, at=("output",), progress=False).accuracy,
        "distance of right answers": float(margins[margins > 0].median()),
    }


@cache
def samples(name: str, seed: int, folder: Path | None) -> tuple[Samples, Samples]:
    """Training and test images of a task, drawn by the seed and standardised by the training images."""
    task = TASKS[name]
    every, test = load_images(task.data, folder)
    train = wm.data.subset(every, count=task.train, seed=seed)
    if task.flips:
        train = wm.data.flip_labels(train, task.flips, seed, 10)
    parts = train, test.select(torch.arange(TEST))
    small = [replace(part, x=F.avg_pool2d(part.x, 2), index=None) for part in parts]
    mean, deviation = (of(small[0].x, dim=(0, 2, 3), keepdim=True) for of in (torch.mean, torch.std))
    first, second = (replace(part, x=(part.x - mean) / deviation) for part in small)
    return first, second


def summarise(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Points over cross-entropy of the same seed, and ratios of distances of right answers; the docs' table."""
    if not rows:
        raise SystemExit("there are no rows: name their files with --rows")
    found = {tuple(row[key] for key in ("task", "network", "augmented", "strength", "seed")): row for row in rows}
    results: list[dict[str, Any]] = []
    for name, task in TASKS.items():
        for network, augmented in itertools.product(task.networks, task.augmented):
            line = [
                gains
                for strength in STRENGTHS[augmented][1:]
                if (gains := _gains(found, (name, network, augmented), strength)) is not None
            ]
            results += line
            if line:
                _print(line)
    same = {key: rows[0].get(key) for key in ("versions", "hardware")}
    commits = list(dict.fromkeys(row.get("commit") for row in rows))
    write_json(out, {"name": "WideMargin with augmented images", "rows": results, "commits": commits, **same})


def _gains(found: dict[Any, dict[str, Any]], setting: tuple[Any, ...], strength: float | None) -> dict[str, Any] | None:
    """One strength in one setting against cross-entropy; None where a seed is missing."""
    both = [tuple(found.get((*setting, value, seed)) for value in (strength, 0.0)) for seed in SEEDS]
    pairs = [(one, other) for one, other in both if one is not None and other is not None]
    if len(pairs) < len(SEEDS):
        return None
    points = [100 * (one["test"] - other["test"]) for one, other in pairs]
    ratios = [one["distance of right answers"] / other["distance of right answers"] for one, other in pairs]
    return {
        **dict(zip(("task", "network", "augmented"), setting, strict=True)),
        **{"strength": strength, "gain": statistics.fmean(points), "deviation": statistics.stdev(points)},
        "cross-entropy": 100 * statistics.fmean(other["test"] for _, other in pairs),
        "cross-entropy, training images": 100 * statistics.fmean(other["train"] for _, other in pairs),
        "distance ratio": statistics.fmean(ratios),
    }


def _print(line: Sequence[dict[str, Any]]) -> None:
    """A row of the table: augmented or not, cross-entropy, then every strength."""
    first = line[0]
    gains = [f"{round(one['gain'], 1) + 0.0:+.1f} ± {one['deviation']:.1f}".replace("-", "−") for one in line]
    cells = [f"{gain} ({one['distance ratio']:.2f})" for gain, one in zip(gains, line, strict=True)]
    cells = cells if first["augmented"] else ["", *cells]
    head = f"| {first['task']} | {first['network']} | {'yes' if first['augmented'] else 'no'} "
    print(f"{head}| {first['cross-entropy']:.1f} % | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
