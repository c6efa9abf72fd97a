"""The strength of `WideMargin` on tables: real ones of scikit-learn, and made ones, in which classes may touch.

Features are standardised, but for "wine, raw" and "breast cancer, raw", which have batch norm in the network instead.

    python benchmarks/table_strengths.py --workers 2      # runs/table-strengths.jsonl, 17 minutes on two cores
    python benchmarks/table_strengths.py summary          # results/wide-margin-tables.json, the table of the docs
    python benchmarks/table_strengths.py --data FOLDER    # other tables: .npz files with x [rows, features] and y

Three MLPs, SGD and Adam, three seeds, 500 steps with batches of 64 and a cosine schedule; nothing is selected. The
networks of all strengths of a seed are one program. Strength 0 is cross-entropy.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import nn

import widemargin as wm
from default_grid.tasks import load_table
from job_rows import Job, options, run_or_summarise
from widemargin import losses, population, training
from widemargin._io.files import write_json
from widemargin.data import Samples
from widemargin.margins.data_scale import DataScale

ROWS, OUT = Path("runs/table-strengths.jsonl"), Path("results/wide-margin-tables.json")
STRENGTHS, SEEDS, BATCH, STEPS, MADE = (0.0, 0.03, 0.1, 0.3, 1.0), (0, 1, 2), 64, 500, 2000
OPTIMIZERS = {"sgd": training.SGD(lr=0.05, momentum=0.9), "adam": training.AdamW(lr=1e-3, weight_decay=0.0)}
Arrays = tuple[np.ndarray, np.ndarray]


def thirds_of_friedman(seed: int) -> Arrays:
    """Friedman's first function of ten features, in thirds."""
    x, value = datasets.make_friedman1(MADE, random_state=seed)
    return x, np.digitize(value, np.quantile(value, [1 / 3, 2 / 3]))


def linear(seed: int) -> Arrays:
    """The side of a plane on which 100 independent features lie."""
    generator = np.random.default_rng(seed)
    x, normal = generator.standard_normal((MADE, 100)), generator.standard_normal(100)
    return x, (x @ normal > 0).astype(int)


def hastie(seed: int) -> Arrays:
    """Inside or outside a sphere, in ten dimensions."""
    x, y = datasets.make_hastie_10_2(MADE, random_state=seed)
    return x, (y > 0).astype(int)


REAL = ("breast cancer", "wine", "iris", "digits")
MAKERS: dict[str, Callable[[int], Arrays]] = {
    "classification": lambda seed: datasets.make_classification(
        MADE, 20, n_informative=8, n_classes=5, flip_y=0.1, random_state=seed
    ),
    "blobs": lambda seed: datasets.make_blobs(MADE, 10, centers=6, cluster_std=4.0, random_state=seed),
    "moons": lambda seed: datasets.make_moons(MADE, noise=0.25, random_state=seed),
    "circles": lambda seed: datasets.make_circles(MADE, noise=0.12, factor=0.6, random_state=seed),
    "gaussian shells": lambda seed: datasets.make_gaussian_quantiles(
        n_samples=MADE, n_features=6, n_classes=3, random_state=seed
    ),
    "friedman": thirds_of_friedman,
    "hastie": hastie,
    "linear": linear,
}
RAW = {f"{name}, raw": name for name in ("wine", "breast cancer")}
TRAIN = {"breast cancer": 200, "wine": 80, "iris": 60, "digits": 300, "classification": 400, "moons": 100}
"""Training rows; 300 of the other tables, or three in five. The other rows are for testing, at most `MADE` of them."""


def mlp(features: int, classes: int, *, depth: int, act: type[nn.Module], norm: bool, dropout: float) -> nn.Module:
    layers: list[nn.Module] = []
    for width in [features, *[64] * (depth - 1)]:
        layers += [nn.Linear(width, 64), *[nn.BatchNorm1d(64)] * norm, act()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(64, classes))


NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "two layers": functools.partial(mlp, depth=2, act=nn.ReLU, norm=False, dropout=0.0),
    "two layers, GELU, dropout": functools.partial(mlp, depth=2, act=nn.GELU, norm=False, dropout=0.2),
    "four layers, batch norm": functools.partial(mlp, depth=4, act=nn.ReLU, norm=True, dropout=0.0),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, OUT)
    parser.add_argument("--tables", nargs="+", choices=[*REAL, *MAKERS, *RAW], default=[*REAL, *MAKERS, *RAW])
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    tables = given.tables if given.data is None else sorted(file.stem for file in given.data.glob("*.npz"))
    every = itertools.product(tables, NETWORKS, OPTIMIZERS, [given.steps])
    jobs = [dict(zip(("data", "network", "optimizer", "steps"), values, strict=True)) for values in every]
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out))


def run(job: Job, device: str, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Train the networks of all strengths, seed by seed; a row per network."""
    for seed in SEEDS:
        train, test = (part.to(device) for part in table(job["data"], seed, folder))
        count = int(torch.cat([train.y, test.y]).max()) + 1
        build = functools.partial(network_of, job, train.x.shape[1], count)
        trained = population.fit(
            [network.to(device) for network in population.build(build, [seed] * len(STRENGTHS))],
            train,
            loss=[losses.WideMargin(strength=strength) for strength in STRENGTHS],
            optimizer=OPTIMIZERS[job["optimizer"]],
            schedule=training.Cosine(),
            steps=job["steps"],
            batch_size=min(BATCH, len(train)),
            seeds=[seed] * len(STRENGTHS),
            chunk=len(STRENGTHS),
            device=device,
            progress=False,
        )
        for strength, network in zip(STRENGTHS, trained.networks, strict=True):
            measured = wm.measure(network, test, progress=False)
            yield {
                "strength": strength,
                "seed": seed,
                "test": measured.accuracy,
                "median distance": float(measured.margins["input"].nanmedian()),
                "separation": separation(train),
                "rows": len(train),
            }


def network_of(job: Job, features: int, classes: int) -> nn.Module:
    """The network of a job, behind batch norm where features are not standardised."""
    network = NETWORKS[job["network"]](features, classes)
    return nn.Sequential(nn.BatchNorm1d(features), network) if job["data"] in RAW else network


def table(name: str, seed: int, folder: Path | None = None) -> tuple[Samples, Samples]:
    """Training and test rows, drawn by the seed and standardised by the training rows, unless raw.

    Features that are constant in the training rows are left out.
    """
    is_raw, name = name in RAW, RAW.get(name, name)
    if folder is not None:
        with np.load(folder / f"{name}.npz") as arrays:
            every = Samples(torch.from_numpy(arrays["x"]).float(), torch.from_numpy(arrays["y"]).long())
    elif name in REAL:
        loaded = load_table(name.replace(" ", "_"))
        every = Samples(loaded.x.flatten(1), loaded.y)
    else:
        x, y = MAKERS[name](seed)
        every = Samples(torch.from_numpy(x).float(), torch.from_numpy(y).long())
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    count = min(TRAIN.get(name, 300), 3 * len(every) // 5)
    train, test = every.select(order[:count]), every.select(order[count : count + MADE])
    mean, spread = train.x.mean(dim=0), train.x.std(dim=0)
    if is_raw:
        return train, test
    made = [Samples(((part.x - mean) / spread)[:, spread > 1e-6], part.y) for part in (train, test)]
    return made[0], made[1]


def separation(train: Samples) -> float:
    """c of a batch: 1 where classes are clearly separated, 0 where they are one cloud."""
    return float(DataScale.of(train.x[None, :BATCH], train.y[None, :BATCH]).separation)


def summarise(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Gains over cross-entropy in points, over seeds, of each table, network and optimizer; the table of the docs."""
    if not rows:
        raise SystemExit("there are no rows: name their files with --rows")
    found = {(r["data"], r["network"], r["optimizer"], r["strength"], r["seed"]): r for r in rows}
    each = list(itertools.product(STRENGTHS, SEEDS))
    settings = sorted({key[:3] for key in found if all((*key[:3], *one) in found for one in each)})  # complete ones
    gains: list[dict[str, Any]] = []
    for setting, strength in itertools.product(settings, STRENGTHS[1:]):
        pairs = [(found[(*setting, strength, seed)], found[(*setting, 0.0, seed)]) for seed in SEEDS]
        points = [100 * (one["test"] - base["test"]) for one, base in pairs]
        gains.append(
            {
                **dict(zip(("data", "network", "optimizer"), setting, strict=True)),
                "strength": strength,
                "gain": statistics.fmean(points),
                "deviation": statistics.stdev(points),
                "cross-entropy": 100 * statistics.fmean(base["test"] for _, base in pairs),
                "rows": pairs[0][0]["rows"],
                "separation": statistics.fmean(one["separation"] for one, _ in pairs),
                "median distance": statistics.fmean(one["median distance"] for one, _ in pairs),
                "median distance of cross-entropy": statistics.fmean(base["median distance"] for _, base in pairs),
            }
        )
    for line in lines(gains):
        print(line)
    origin = {key: rows[-1][key] for key in ("commit", "versions", "hardware")}
    write_json(out, {"name": "strengths of WideMargin on tables", "all": overall(gains), "rows": gains, **origin})


def lines(gains: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The table of the docs: mean gain and lowest one of a setting over strengths, and the ratio of the distances."""
    known = [*REAL, *MAKERS]
    order = {row["data"]: known.index(row["data"]) if row["data"] in known else len(known) for row in gains}
    for data in sorted(order, key=lambda name: (order[name], name)):
        here = [row for row in gains if row["data"] == data]
        cells = []
        for strength in STRENGTHS[1:]:
            points = [row["gain"] for row in here if row["strength"] == strength]
            mean, least = (round(value, 1) + 0.0 for value in (statistics.fmean(points), min(points)))  # no −0.0
            cells.append(f"{mean:.1f} ({least:.1f})".replace("-", "−"))
        full = [row for row in here if row["strength"] == STRENGTHS[-1]]
        pairs = [(row["median distance"], row["median distance of cross-entropy"]) for row in full]
        wider = (
            f"{statistics.median(one / base for one, base in pairs):.2f}"
            if min(pairs, key=lambda p: p[1])[1] > 0
            else "–"
        )
        clear = statistics.fmean(row["separation"] for row in full)
        yield f"| {data} | {full[0]['rows']} | {clear:.2f} | {' | '.join(cells)} | {wider} |"


def overall(gains: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of every strength: the number of settings, mean and lowest gain, and the share that lose at most 1 point."""
    found = {}
    for strength in STRENGTHS[1:]:
        points = [row["gain"] for row in gains if row["strength"] == strength]
        found[f"{strength:g}"] = {
            "settings": len(points),
            "gain": statistics.fmean(points),
            "lowest": min(points),
            "within 1 point": statistics.fmean(point >= -1 for point in points),
        }
    return found


if __name__ == "__main__":
    main()
