"""The strength of `WideMargin` over data, number of samples, size of the images and network: which one is best?

    python benchmarks/strengths.py --device cuda --data FOLDER --workers 10     # runs/strengths.jsonl
    python benchmarks/strengths.py --tasks cifar10 --train 1000 --pixels 16 --networks cnn    # a corner of it
    python benchmarks/strengths.py summary                                      # results/wide-margin-strengths.json

A job trains the networks of all strengths and seeds of one setting as one program, with the whole batch and no rule for
the number of samples. Strength 0 is cross-entropy. `FOLDER` is that of benchmarks/grid.py; smaller images are averages
of pixels. Rows have the accuracy on validation samples, which decides, and on test samples.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import widemargin as wm
from default_grid.networks import NETWORKS
from default_grid.tasks import load_images
from job_rows import Job, options, run_or_summarise
from widemargin import losses, population, training
from widemargin._io.files import write_json
from widemargin.data import Samples

ROWS, OUT = Path("runs/strengths.jsonl"), Path("results/wide-margin-strengths.json")
STRENGTHS, SEEDS, BATCH, STEPS, HELD = (0.0, 0.03, 0.1, 0.3, 1.0), (0, 1, 2), 64, 900, 1500
SETTING = ("data", "train", "pixels", "flips", "network", "steps")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, OUT)
    parser.add_argument("--tasks", nargs="+", choices=("mnist", "cifar10"), default=["mnist", "cifar10"])
    parser.add_argument("--train", nargs="+", type=int, default=[500, 1000, 2000, 4000])
    parser.add_argument("--pixels", nargs="+", type=int, default=[16, 32], help="sides of the images; MNIST has 14, 28")
    parser.add_argument("--flips", nargs="+", type=float, default=[0.0, 0.4])
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=["mlp", "cnn", "resnet-gn", "resnet-bn"])
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    every = itertools.product(given.tasks, given.train, given.pixels, given.flips, given.networks, [given.steps])
    jobs = [dict(zip(SETTING, values, strict=True)) for values in every]
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out))


def run(job: Job, device: str, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Train all networks of a job; a row per network."""
    members = list(itertools.product(STRENGTHS, SEEDS))
    parts = {seed: _data(job, seed, folder, device) for seed in SEEDS}
    shape = tuple(parts[SEEDS[0]][0].x.shape[1:])
    built = population.build(functools.partial(NETWORKS[job["network"]], shape, 10), [seed for _, seed in members])
    trained = population.fit(
        [network.to(device) for network in built],
        [parts[seed][0] for _, seed in members],
        loss=[losses.WideMargin(strength=strength, samples=1) for strength, _ in members],
        optimizer=training.SGD(lr=0.03, momentum=0.9),
        schedule=training.Cosine(),
        steps=job["steps"],
        batch_size=BATCH,
        seeds=[seed for _, seed in members],
        chunk=len(members),
        convolutions="grouped",
        device=device,
        progress=False,
    )
    for (strength, seed), network in zip(members, trained.networks, strict=True):
        _, held, test = parts[seed]
        measured = wm.measure(network, test)
        yield {
            "strength": strength,
            "seed": seed,
            "validation": wm.measure(network, held).accuracy,
            "test": measured.accuracy,
            "median distance": float(measured.margins["input"].nanmedian()),
        }


def _data(job: Job, seed: int, folder: Path | None, device: str) -> tuple[Samples, Samples, Samples]:
    """Training, validation and test samples, standardised by the training samples; only training labels are flipped."""
    every, test = load_images(job["data"], folder)
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    train, held = every.select(order[: job["train"]]), every.select(order[job["train"] :][:HELD])
    mean, deviation = train.x.mean(dim=(0, 2, 3), keepdim=True), train.x.std(dim=(0, 2, 3), keepdim=True) + 1e-6
    factor = max(1, every.x.shape[-1] // job["pixels"])

    def made(part: Samples) -> Samples:
        return Samples(F.avg_pool2d((part.x - mean) / deviation, factor), part.y).to(device)

    flipped = wm.data.flip_labels(train, job["flips"], seed, 10) if job["flips"] else train
    return made(flipped), made(held), made(test)


def summarise(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """The gain of every strength over cross-entropy in each setting that is complete, in points, over seeds."""
    if not rows:
        raise SystemExit("there are no rows: name their files with --rows")
    settings: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        settings.setdefault(tuple(row[name] for name in SETTING), []).append(row)
    table = []
    complete = {key: some for key, some in settings.items() if len(some) == len(STRENGTHS) * len(SEEDS)}
    for key, of_setting in sorted(complete.items()):
        base = {row["seed"]: row for row in of_setting if row["strength"] == 0}
        for strength in STRENGTHS:
            here = [row for row in of_setting if row["strength"] == strength and row["seed"] in base]
            entry = {**dict(zip(SETTING, key, strict=True)), "strength": strength, "seeds": len(here)}
            for part in ("validation", "test"):
                entry[part] = 100 * statistics.fmean(row[part] for row in here)
                gains = [100 * (row[part] - base[row["seed"]][part]) for row in here]
                entry[f"{part} gain"] = statistics.fmean(gains)
                entry[f"{part} gain, deviation"] = statistics.stdev(gains)
            entry["median distance"] = statistics.fmean(row["median distance"] for row in here)
            table.append(entry)
            print({name: round(v, 3) if isinstance(v, float) else v for name, v in entry.items()})
    used = [row for some in complete.values() for row in some]
    origin: dict[str, Any] = {key: rows[-1][key] for key in ("commit", "versions")}
    origin["commits"] = sorted({row["commit"] for row in used})
    origin["hardware"] = {"devices": sorted({row["hardware"].get("gpu", row["hardware"]["device"]) for row in used})}
    write_json(out, {"name": "strengths of WideMargin", "rows": table, **origin})


if __name__ == "__main__":
    main()
