"""`WideMargin` where classes are rare, with and without class weights.

    python benchmarks/imbalance.py --workers 2     # runs/imbalance.jsonl, minutes
    python benchmarks/imbalance.py summary         # results/wide-margin-imbalance.json, the table of the docs

Two classes, one of them with 3 to 10 % of the training samples: digits (8 or not, 4 or 9), breast cancer, Gaussian
clusters; and ten classes of digits with 100 to 5 samples. An MLP of two hidden layers, `wm.fit` with AdamW at 0.002 for
40 epochs, batches of 32, five seeds. On test samples: the balanced accuracy, which is the mean over classes, and the
accuracy, which weighs each class by its share of the training samples. Nothing is selected.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from torch import Tensor, nn

import widemargin as wm
from job_rows import Job, options, run_or_summarise
from widemargin import losses, training
from widemargin._io.files import write_json
from widemargin.data import Samples

ROWS, OUT = Path("runs/imbalance.jsonl"), Path("results/wide-margin-imbalance.json")
SEEDS, EPOCHS, BATCH, WIDTH = (0, 1, 2, 3, 4), 40, 32, 64
COUNTS = {
    "clusters, 3 %": (970, 30),
    "clusters, 10 %": (900, 100),
    "breast cancer, 3 %": (200, 6),
    "digits, 8": (540, 60),
    "digits, 4 or 9": (100, 5),
    "digits, 100 to 5": (100, 72, 51, 37, 26, 19, 14, 10, 7, 5),
}
"""Training samples of the classes, the most common one first."""
MEASURES = ("balanced accuracy", "accuracy")

BASES: dict[str, losses.Loss] = {"cross-entropy": losses.CrossEntropy(), "WideMargin": losses.WideMargin()}
LOSSES = (*BASES, *(f"{name}, class weights" for name in BASES))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, OUT)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    given = parser.parse_args(arguments)
    every = itertools.product(COUNTS, LOSSES, SEEDS, [given.epochs])
    jobs = [dict(zip(("data", "loss", "seed", "epochs"), values, strict=True)) for values in every]
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out))


def run(job: Job, device: str, _: Path | None) -> Iterator[dict[str, Any]]:
    """Train and evaluate one network."""
    train, test = samples(job["data"], job["seed"])
    torch.manual_seed(job["seed"])
    layers = (nn.Linear(train.x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    head = nn.Linear(WIDTH, len(COUNTS[job["data"]]))
    name, _, weights = job["loss"].partition(", ")
    loss = BASES[name]
    found = wm.fit(
        nn.Sequential(*layers, head),
        train,
        loss=losses.Weighted(loss=loss, classes=losses.balanced_weights(train.y)) if weights else loss,
        epochs=job["epochs"],
        optimizer=training.AdamW(lr=2e-3),
        batch_size=BATCH,
        seed=job["seed"],
        devices=training.Devices(accelerator=device),
        callbacks=(training.Measure(every=None),),
    )
    measured, fitted = (wm.measure(found.model, data, at=("output",), progress=False) for data in (test, train))
    right = measured.output > 0
    recalls = torch.stack([right[measured.labels == label].double().mean() for label in range(head.out_features)])
    shares = train.y.bincount() / len(train)
    yield {
        "balanced accuracy": measured.balanced_accuracy,
        "accuracy": float(recalls @ shares.double()),
        "training": fitted.balanced_accuracy,
    }


def samples(name: str, seed: int) -> tuple[Samples, Samples]:
    """Training samples of all classes, drawn by the seed and standardised, and all others for testing."""
    x, y = read(name)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)
    parts = [order[y[order] == label] for label in range(len(COUNTS[name]))]
    chosen = torch.cat([part[:count] for part, count in zip(parts, COUNTS[name], strict=True)])
    rest = torch.cat([part[count:] for part, count in zip(parts, COUNTS[name], strict=True)])
    mean, deviation = x[chosen].mean(dim=0), x[chosen].std(dim=0).clamp(min=1e-6)
    z = (x - mean) / deviation
    return Samples(z[chosen], y[chosen]), Samples(z[rest], y[rest])


def read(name: str) -> tuple[Tensor, Tensor]:
    """Features and classes; of two, 1 is the rare one."""
    if name.startswith("clusters"):
        x, y = make_classification(4000, n_features=20, n_informative=8, class_sep=1.0, random_state=0)
    elif name.startswith("breast"):
        x, y = load_breast_cancer(return_X_y=True)
        y = 1 - y  # malignant ones are rare
    else:
        x, y = load_digits(return_X_y=True)
        if name == "digits, 4 or 9":
            x, y = x[(y == 4) | (y == 9)], y[(y == 4) | (y == 9)] == 9
        elif name == "digits, 8":
            y = y == 8
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y).long()


def summarise(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Mean and deviation of both accuracies in percent; the table of the docs."""
    if not rows:
        raise SystemExit("there are no rows: name their files with --rows")
    table: list[dict[str, Any]] = [
        {"data": data, "measure": measure, **{loss: _moments(rows, data, loss, measure) for loss in LOSSES}}
        for measure, data in itertools.product(MEASURES, COUNTS)
    ]
    for found in table:
        shown = (f"{found[loss]['mean']:.1f} ± {found[loss]['deviation']:.1f}" for loss in LOSSES)
        print(f"| {found['measure']} | {found['data']} | {' | '.join(shown)} |")
    origin = {key: rows[-1][key] for key in ("commit", "versions", "hardware")}
    write_json(out, {"name": "WideMargin with rare classes", "rows": table, **origin})


def _moments(rows: Sequence[dict[str, Any]], data: str, loss: str, measure: str) -> dict[str, float]:
    values = [100 * row[measure] for row in rows if row["data"] == data and row["loss"] == loss]
    if len(values) != len(SEEDS):
        raise SystemExit(f"{data} with {loss} has {len(values)} rows, expected {len(SEEDS)}: run the benchmark first")
    return {"mean": statistics.fmean(values), "deviation": statistics.stdev(values)}


if __name__ == "__main__":
    main()
