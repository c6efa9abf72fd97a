"""How far the boundary really is: a small CNN on MNIST, trained by cross-entropy and for a large margin, bracketed.

    python benchmarks/bracket.py                     # 2 seeds, 100 test images each

Both networks of a seed start from the same weights and see the same 1000 images of mnist-5k in the same order. For
each, the l_2 distance of test images from the boundary is certified below, attacked above, and linearised. Written are
the medians over the images that are classified right, their means over the seeds, and the processor seconds of each
bracket.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from widemargin import data, losses, models, training
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.certify import bracket

NETWORK: dict[str, Any] = {"widths": (4, 8), "hidden": (64,)}
LOSSES = {"cross-entropy": losses.CrossEntropy(), "large margin": losses.large_margin(gamma=1.0, p=2.0)}
TRAIN, BATCH, LR = 1000, 50, 2e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=8, help="radii that the relaxation tries")
    parser.add_argument("--out", type=Path, default=Path("results/bracket.json"))
    options = parser.parse_args()
    settings = {
        "network": f"elsayed-mnist-cnn {NETWORK}",
        "data": "mnist-5k",
        "training images": TRAIN,
        "batch size": BATCH,
        "optimizer": f"Adam, lr {LR:g}",
        "losses": {name: repr(loss) for name, loss in LOSSES.items()},
        **{name: getattr(options, name) for name in ("epochs", "images", "steps", "seeds")},
        "norm": "l_2",
    }
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        rows += [run(name, seed, options) for name in LOSSES]
        together = [summary(name, [row for row in rows if row["loss"] == name]) for name in LOSSES]
        write_json(options.out, {"settings": settings, "rows": rows, "over seeds": together, **provenance()})
    for row in together:
        print(line(row))
    print("wrote", options.out)


def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    found = data.load("mnist-5k")
    train = data.subset(found.train, count=TRAIN, seed=seed, balanced=True)
    test = data.subset(found.test, count=options.images, seed=seed, balanced=True)
    torch.manual_seed(seed)
    network: nn.Module = models.mnist_cnn(**NETWORK)
    network = training.fit(
        network,
        train,
        loss=LOSSES[name],
        optimizer=training.AdamW(lr=LR),
        epochs=options.epochs,
        batch_size=BATCH,
        seed=seed,
        callbacks=[training.Measure(every=None)],
        devices=training.Devices(accelerator="cpu"),
    ).model
    started = time.process_time()
    found = bracket.bracket(network, test.x, test.y, steps=options.steps)
    told = found.summary()
    row = {
        "loss": name,
        "seed": seed,
        "accuracy": float(found.correct.double().mean()),
        "bracketed": told["bracketed"],
        **told["medians"],
        "between": told["between"],
        "lower by": {by: found.lower_by.count(by) for by in dict.fromkeys(found.lower_by)},
        "seconds": round(time.process_time() - started, 1),
    }
    print(line(row), flush=True)
    return row


def summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over the seeds of each number."""
    numbers = ("accuracy", "lower", "upper", "linearized", "gap", "lower/upper", "error", "between", "seconds")
    return {"loss": name, "seed": "mean", **{key: statistics.fmean(row[key] for row in rows) for key in numbers}}


def line(row: dict[str, Any]) -> str:
    shown = ("accuracy", "lower", "upper", "linearized", "lower/upper", "error", "between")
    numbers = "  ".join(f"{key} {row[key]:.3f}" for key in shown)
    return f"{row['loss']:14} seed {row['seed']}: {numbers}  ({row['seconds']:.0f} s)"


if __name__ == "__main__":
    main()
