"""Study W7: how well do margin distributions predict the generalization gap of small networks?

    python benchmarks/gap_prediction.py --device cuda --data FOLDER --workers 10    # runs/gap-prediction.jsonl
    python benchmarks/gap_prediction.py --jobs 4 --scale 0.05                        # a corner of it, on a CPU
    python benchmarks/gap_prediction.py summary --store   # results/gap-prediction.json, and the package's coefficients

A job trains six networks of one random setting as one program: data (500 or 2,000 samples of MNIST, 1,000 or 4,000 of
CIFAR-10), architecture (MLPs and CNNs of several widths and depths), loss, optimizer and weight decay; its networks
differ in the share of flipped labels and in the learning rate. The gap is training minus test accuracy; test labels are
flipped with the same probability, so that training and test samples have one distribution. Models are fitted on half of
the jobs and tested on the rest. Rivals have the same linear regression: normalized margins (spectral), norms of the
weights; and the gap estimated with labelled validation samples. Measuring the margins of 1,000 samples is a forward and
a backward pass of each, about the cost of 3,000 validation samples. `FOLDER` is that of benchmarks/grid.py.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import widemargin as wm
from default_grid.tasks import load_images
from job_rows import Job, options, run_or_summarise
from widemargin import losses, population, training
from widemargin._io.files import write_json
from widemargin.data import Samples
from widemargin.diagnostics import gap_model as models
from widemargin.margins.measurement import accuracy
from widemargin.margins.normalized import spectral_complexity, weights
from widemargin.modules import predict

ROWS, OUT = Path("runs/gap-prediction.jsonl"), Path("results/gap-prediction.json")
STORED = Path("src/widemargin/diagnostics") / models.STORED
JOBS, BATCH, STEPS, MEASURED = 96, 64, 1500, 1000
FLIPS, RATES = (0.0, 0.1, 0.3), {"sgd": (0.01, 0.05), "adam": (3e-4, 2e-3)}
LOSSES = {
    "cross-entropy": losses.CrossEntropy(),
    "label smoothing": losses.CrossEntropy(label_smoothing=0.1),
    "wide margin": losses.WideMargin(),
    "generalized cross-entropy": losses.GeneralizedCrossEntropy(),
}
VALIDATION = (50, 100, 200, 500, 1000, 2000)
SAMPLES = {"mnist": (500, 2000), "cifar10": (1000, 4000)}
TEST = 2000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, OUT)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--kinds", nargs="+", choices=("mlp", "cnn"), default=["mlp", "cnn"])
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of steps")
    parser.add_argument("--store", action="store_true", help="also write the coefficients into the package")
    given = parser.parse_args(arguments)
    every = [setting(number, given.scale) for number in range(given.jobs)]
    jobs = [job for job in every if job["kind"] in given.kinds]
    stored = STORED if given.store else None
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out, stored))


def setting(number: int, scale: float) -> Job:
    """The random setting of a job; the data sets and their sizes take turns."""
    rng = random.Random(number)
    data = ("mnist", "cifar10")[number % 2]
    kind = rng.choice(("mlp", "cnn"))
    return {
        "job": number,
        "data": data,
        "train": SAMPLES[data][number // 2 % 2],
        "kind": kind,
        "width": rng.choice((32, 128, 384) if kind == "mlp" else (8, 16, 48)),
        "depth": rng.choice((1, 2, 4) if kind == "mlp" else (2, 3, 4)),
        "loss": rng.choice(tuple(LOSSES)),
        "optimizer": rng.choice(tuple(RATES)),
        "decay": rng.choice((0.0, 1.0)),
        "steps": max(4, round(scale * STEPS)),
    }


def build(job: Job, shape: tuple[int, ...]) -> nn.Module:
    """An MLP with `depth` hidden layers, or a CNN with so many convolutions; pools after the first two."""
    width, depth = job["width"], job["depth"]
    channels, size, _ = shape
    if job["kind"] == "mlp":
        sizes = [math.prod(shape), *[width] * depth]
        hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), *([nn.MaxPool2d(2)] if number < 2 else [])]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * (size // 4) ** 2, 10))


def run(job: Job, device: str, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Train the six networks of a job and measure each; a row per network."""
    started = time.perf_counter()
    every, test = load_images(job["data"], folder)
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(job["job"]))
    train, held = every.select(order[: job["train"]]), every.select(order[job["train"] :][: max(VALIDATION)])
    mean, deviation = train.x.mean(dim=(0, 2, 3), keepdim=True), train.x.std(dim=(0, 2, 3), keepdim=True) + 1e-6
    train, held, test = (
        Samples((part.x - mean) / deviation, part.y).to(device)
        for part in (train, held, test.select(torch.arange(min(TEST, len(test)))))
    )
    members = [(flips, lr) for flips in FLIPS for lr in RATES[job["optimizer"]]]
    parts = [wm.data.flip_labels(train, flips, job["job"], 10) for flips, _ in members]
    seeds = [100 * job["job"] + number for number in range(len(members))]
    built = population.build(functools.partial(build, job, tuple(train.x.shape[1:])), seeds)
    trained = population.fit(
        [network.to(device) for network in built],
        parts,
        loss=LOSSES[job["loss"]],
        optimizer=[optimizer(job, lr) for _, lr in members],
        steps=job["steps"],
        batch_size=BATCH,
        seeds=seeds,
        schedule=training.Cosine(),
        chunk=len(members),
        convolutions="grouped",
        device=device,
        progress=False,
    )
    seconds = time.perf_counter() - started
    for (flips, lr), network, part in zip(members, trained.networks, parts, strict=True):
        others = [wm.data.flip_labels(one, flips, job["job"] + 1000, 10) for one in (held, test)]
        yield {"flips": flips, "lr": lr, **measured(network, part, *others), "seconds": seconds / len(members)}


def optimizer(job: Job, lr: float) -> training.SGD | training.AdamW:
    if job["optimizer"] == "sgd":
        return training.SGD(lr=lr, momentum=0.9, weight_decay=2e-3 * job["decay"])
    return training.AdamW(lr=lr, weight_decay=0.1 * job["decay"])


def measured(network: nn.Module, train: Samples, held: Samples, test: Samples) -> dict[str, Any]:
    """Accuracies, and the features of all predictors; `failed` where a network has too few right answers."""
    fitted = accuracy(network, train)
    found: dict[str, Any] = {"training accuracy": fitted, "test accuracy": accuracy(network, test)}
    started = time.perf_counter()
    try:
        signature = wm.diagnostics.margin_signature(network, train, samples=MEASURED)
    except ValueError as error:
        return {**found, "failed": str(error)}
    found |= {"signature": signature.values.flatten().tolist(), "seconds of margins": time.perf_counter() - started}
    few = train.select(torch.arange(min(MEASURED, len(train)), device=train.y.device))
    with torch.no_grad():
        scores = network(few.x)
        margin = wm.margins.output(scores, few.y)
        complexity = spectral_complexity(network, few.x[:1], biases="ignore")
    positive = margin[margin > 0].double().cpu()
    quartiles = positive.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    found["normalized margins"] = (quartiles / complexity).log().tolist()
    sizes = [float(weight.norm().log()) for _, weight in weights(network, biases="ignore")]
    found["weight norms"] = [sum(sizes), statistics.fmean(sizes), math.log(complexity)]
    right = (predict(network, held.x, batch_size=1000).argmax(dim=1) == held.y).double()
    counts = [count for count in VALIDATION if count <= len(held)]
    found["validation"] = {str(count): fitted - float(right[:count].mean()) for count in counts}
    return found


def summarise(rows: Sequence[dict[str, Any]], out: Path, store: Path | None) -> None:
    """Test every predictor on the jobs that it was not fitted to, and write the coefficients of the margins."""
    good = [row for row in rows if "signature" in row and all(map(_is_finite, row["signature"]))]
    if not good:
        raise SystemExit("there are no rows: name their files with --rows")
    gaps = np.array([row["training accuracy"] - row["test accuracy"] for row in good])
    jobs = [row["job"] for row in good]
    cells = [(row["data"], row["train"], row["flips"]) for row in good]
    words = _words(good)
    columns: dict[str, list[list[float]]] = {
        "margins at four places": [row["signature"] for row in good],
        "margins at the input": [row["signature"][:5] for row in good],
        "margins at the last layer": [row["signature"][15:] for row in good],
        "normalized margins": [row["normalized margins"] for row in good],
        "weight norms": [row["weight norms"] for row in good],
        "training accuracy": [[row["training accuracy"]] for row in good],
    }
    tested = {name: _tested(np.array(values), gaps, jobs, cells) for name, values in columns.items()}
    held = models.split(jobs, 2) == 1
    for count in VALIDATION:
        if all(str(count) in row["validation"] for row in good):
            estimate = np.array([row["validation"][str(count)] for row in good])[held]
            tested[f"{count} validation samples"] = _figures(gaps[held], estimate, _where(cells, held))
    across = {
        f"fitted on {a}, tested on {b}": _across(np.array(columns["margins at four places"]), gaps, good, cells, a, b)
        for a, b in (("mnist", "cifar10"), ("cifar10", "mnist"))
    }
    model = models.fit_gap_model(np.array(columns["margins at four places"]), gaps, groups=jobs, fitted_on=words)
    origin = {key: good[-1][key] for key in ("commit", "versions", "hardware")}
    spread = {"mean gap": float(gaps.mean()), "deviation of the gaps": float(gaps.std())}
    left_out = {"networks": len(rows), "without a signature": len(rows) - len(good)}
    predictors = {"predictors": tested, "across data": across}
    about = {"name": "W7, generalization gap", "population": words}
    write_json(out, {**about, **left_out, **spread, **predictors, **origin})
    if store is not None:
        write_json(store, {**model.plain(), "about": {**model.about, **origin, "study": "W7"}})
    for name, found in (tested | across).items():  # the table of docs/methods/generalization-gap.md
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in found.values()) + " |")
    print(words, spread, left_out)


def _tested(x: np.ndarray, gaps: np.ndarray, jobs: list[int], cells: list[Any]) -> dict[str, float]:
    """R², rank correlations and error on the jobs that are left out, as in `fit_gap_model`."""
    held = models.split(jobs, 2) == 1
    model = models.fitted(x[~held], gaps[~held], _where(jobs, ~held), [str(k) for k in range(x.shape[1])])
    return _figures(gaps[held], model.predict(x[held]), _where(cells, held))


def _across(x: np.ndarray, gaps: np.ndarray, rows: list[Any], cells: list[Any], a: str, b: str) -> dict[str, float]:
    of = np.array([row["data"] for row in rows])
    if not ((of == a).any() and (of == b).any()):
        return {}
    model = models.fitted(x[of == a], gaps[of == a], _where([row["job"] for row in rows], of == a))
    return _figures(gaps[of == b], model.predict(x[of == b]), _where(cells, of == b))


def _figures(gaps: np.ndarray, predicted: np.ndarray, cells: list[Any]) -> dict[str, float]:
    return {
        "r2": round(models.r_squared(gaps, predicted), 4),
        "rank correlation": round(models.conditional_rank_correlation(gaps, predicted, [0] * len(gaps)), 4),
        "conditional rank correlation": round(models.conditional_rank_correlation(gaps, predicted, cells), 4),
        "mean absolute error": round(float(np.abs(gaps - predicted).mean()), 4),
    }


def _where(values: Sequence[Any], chosen: np.ndarray) -> list[Any]:
    return [value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen]


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _words(rows: Sequence[dict[str, Any]]) -> str:
    sizes = sorted({(row["data"], row["train"]) for row in rows})
    names = " and ".join(name for kind, name in (("mlp", "MLPs"), ("cnn", "CNNs")) if kind in {r["kind"] for r in rows})
    layers = [row["depth"] + 1 for row in rows]
    return (
        f"{len(rows)} {names} with {min(layers)} to {max(layers)} layers of weights, trained on "
        + ", ".join(f"{count:,} images of {'MNIST' if data == 'mnist' else 'CIFAR-10'}" for data, count in sizes)
        + " with 0 to 30 % flipped labels"
    )


if __name__ == "__main__":
    main()
