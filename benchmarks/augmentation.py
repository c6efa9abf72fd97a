"""The strength of `WideMargin` with and without random crops and flips of the images.

    python benchmarks/augmentation.py --data FOLDER --workers 2   # runs/augmentation.jsonl, half an hour on two cores
    python benchmarks/augmentation.py summary                     # results/wide-margin-augmentation.json, the table

2,250 images of CIFAR-10, averaged to 16 × 16 pixels and standardised; a CNN, a ResNet with batch norm and a ViT, 780
steps with batches of 64 and a cosine schedule; crops shift by up to 2 pixels. Nothing is selected. Strength 0 is
cross-entropy.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from widemargin.losses.wrappers import CropsAndFlips

ROWS, OUT = Path("runs/augmentation.jsonl"), Path("results/wide-margin-augmentation.json")
STRENGTHS, SEEDS, TRAIN, TEST, CROP, BATCH, STEPS = (0.0, 0.1, 0.3, 1.0), (0, 1, 2), 2250, 2000, 2, 64, 780
OPTIMIZERS: dict[str, Any] = {
    "cnn": training.SGD(lr=0.03, momentum=0.9),
    "resnet-bn": training.SGD(lr=0.03, momentum=0.9),
    "vit": training.AdamW(lr=1e-3, weight_decay=0.0),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, OUT)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    every = itertools.product(SEEDS, OPTIMIZERS, (True, False), STRENGTHS, [given.steps])
    jobs = [dict(zip(("seed", "network", "augmented", "strength", "steps"), values, strict=True)) for values in every]
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out))


def run(job: Job, device: str, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Train and evaluate one network."""
    train, test = (part.to(device) for part in samples(job["seed"], folder))
    torch.manual_seed(job["seed"])
    network = NETWORKS[job["network"]](tuple(train.x.shape[1:]), 10).to(device)
    loss: losses.Loss = losses.WideMargin(strength=job["strength"])
    wm.fit(
        network,
        train,
        loss=CropsAndFlips(loss=loss, crop=CROP) if job["augmented"] else loss,
        epochs=max(1, round(job["steps"] / -(-len(train) // BATCH))),
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
def samples(seed: int, folder: Path | None) -> tuple[Samples, Samples]:
    """Training and test images, drawn by the seed and standardised by the training images."""
    every, test = load_images("cifar10", folder)
    parts = wm.data.subset(every, count=TRAIN, seed=seed), test.select(torch.arange(TEST))
    small = [replace(part, x=F.avg_pool2d(part.x, 2), index=None) for part in parts]
    mean, deviation = (of(small[0].x, dim=(0, 2, 3), keepdim=True) for of in (torch.mean, torch.std))
    first, second = (replace(part, x=(part.x - mean) / deviation) for part in small)
    return first, second


def summarise(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Points over cross-entropy of the same seed, and ratios of distances of right answers; the docs' table."""
    if not rows:
        raise SystemExit("there are no rows: name their files with --rows")
    found = {tuple(row[key] for key in ("network", "augmented", "strength", "seed")): row for row in rows}
    results: list[dict[str, Any]] = []
    for network, augmented in itertools.product(OPTIMIZERS, (True, False)):
        base = [found.get((network, augmented, 0.0, seed)) for seed in SEEDS]
        line = []
        for strength in STRENGTHS[1:]:
            pairs = zip([found.get((network, augmented, strength, seed)) for seed in SEEDS], base, strict=True)
            both = [(one, other) for one, other in pairs if one is not None and other is not None]
            if len(both) < len(SEEDS):
                continue
            points = [100 * (one["test"] - other["test"]) for one, other in both]
            ratios = [one["distance of right answers"] / other["distance of right answers"] for one, other in both]
            line.append(
                {
                    **{"network": network, "augmented": augmented, "strength": strength},
                    **{"gain": statistics.fmean(points), "deviation": statistics.stdev(points)},
                    "cross-entropy": 100 * statistics.fmean(other["test"] for _, other in both),
                    "cross-entropy, training images": 100 * statistics.fmean(other["train"] for _, other in both),
                    "distance ratio": statistics.fmean(ratios),
                }
            )
        results += line
        if line:
            cells = [f"{one['gain']:+.1f} ± {one['deviation']:.1f} ({one['distance ratio']:.1f})" for one in line]
            head = f"| {network} | {'yes' if augmented else 'no'} | {line[0]['cross-entropy']:.1f} % |"
            print(f"{head} {' | '.join(cells)} |".replace("-0.0", "0.0").replace("-", "−"))
    same = {key: rows[0].get(key) for key in ("commit", "versions", "hardware")}
    write_json(out, {"name": "WideMargin with augmented images", "steps": rows[0]["steps"], "rows": results, **same})


if __name__ == "__main__":
    main()
