"""`WideMargin` on text: which of six Python libraries is a docstring from?

    python benchmarks/text.py --workers 2      # runs/text.jsonl, 25 minutes on two cores
    python benchmarks/text.py summary          # results/wide-margin-text.json, the table of the docs

1,000 docstrings of at least 12 words, their first 32 words, without the name of the library; right labels and 40 % of
them flipped; a bag of words, an LSTM and a transformer, `wm.fit` with Adam at two rates for 25 epochs, batches of 64, a
cosine schedule, three seeds. Nothing is selected. The texts are those of the installed versions.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import widemargin as wm
from job_rows import Job, options, run_or_summarise
from widemargin import losses, training
from widemargin._io.files import write_json
from widemargin.data import Samples

ROWS, OUT = Path("runs/text.jsonl"), Path("results/wide-margin-text.json")
LIBRARIES = ("numpy", "scipy", "sklearn", "torch", "lightning", "transformers")
TRAIN, TEST, WORDS, FEWEST, VOCABULARY, WIDTH = 1000, 2000, 32, 12, 3000, 64
FILES, TEXTS = 400, 1500
"""Read from a library: at most so many files, until so many texts are found."""

SEEDS, RATES, FLIPS, EPOCHS, BATCH = (0, 1, 2), (1e-3, 3e-3), (0.0, 0.4), 25, 64
LOSSES: dict[str, losses.Loss] = {"cross-entropy": losses.CrossEntropy(), "WideMargin": losses.WideMargin()}


class Bag(nn.Module):
    """The mean of the embeddings, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.output = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, len(LIBRARIES)))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.embedding(x).mean(dim=1))
        return scores


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, len(LIBRARIES))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.lstm(self.embedding(x))[0].mean(dim=1))
        return scores


class Transformer(nn.Module):
    """Two encoders of four heads, with learnt positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(WORDS, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(WIDTH, len(LIBRARIES))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.encoder(self.embedding(x) + self.positions).mean(dim=1))
        return scores


NETWORKS: dict[str, Callable[[], nn.Module]] = {"bag of words": Bag, "LSTM": Lstm, "transformer": Transformer}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, OUT)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    given = parser.parse_args(arguments)
    every = itertools.product(NETWORKS, LOSSES, RATES, FLIPS, SEEDS, [given.epochs])
    names = ("network", "loss", "lr", "flips", "seed", "epochs")
    jobs = [dict(zip(names, values, strict=True)) for values in every]
    run_or_summarise(given, jobs=jobs, run=run, summarise=lambda rows: summarise(rows, given.out))


def run(job: Job, device: str, _: Path | None) -> Iterator[dict[str, Any]]:
    """Train and evaluate one network."""
    train, test = samples(job["seed"], job["flips"])
    torch.manual_seed(job["seed"])
    network = NETWORKS[job["network"]]()
    wm.fit(
        network,
        train,
        loss=LOSSES[job["loss"]],
        epochs=job["epochs"],
        optimizer=training.AdamW(lr=job["lr"], weight_decay=0.0),
        schedule=training.Cosine(),
        batch_size=BATCH,
        seed=job["seed"],
        devices=training.Devices(accelerator=device),
        callbacks=(),
    )
    measured = wm.measure(network, test, at=("embedding",), progress=False)
    fitted = wm.measure(network, train, at=("output",), progress=False)
    distance = float(measured.margins["embedding"].nanmedian())
    yield {"test": measured.accuracy, "train": fitted.accuracy, "median distance": distance}


def samples(seed: int, flips: float) -> tuple[Samples, Samples]:
    """Word numbers [texts, WORDS] and libraries: 0 is no word, 1 one that is not among the most common ones."""
    every = [(words, label) for label, name in enumerate(LIBRARIES) for words in texts(name)]
    order = np.random.default_rng(seed).permutation(len(every))[: TRAIN + TEST]
    chosen = [every[k] for k in order]
    common = Counter(word for words, _ in chosen[:TRAIN] for word in words).most_common(VOCABULARY - 2)
    numbers = {word: number for number, (word, _) in enumerate(common, start=2)}
    x = torch.zeros(len(chosen), WORDS, dtype=torch.long)
    for row, (words, _) in zip(x, chosen, strict=True):
        row[: len(words)] = torch.tensor([numbers.get(word, 1) for word in words])
    y = torch.tensor([label for _, label in chosen])
    train, test = Samples(x[:TRAIN], y[:TRAIN]), Samples(x[TRAIN:], y[TRAIN:])
    return wm.data.flip_labels(train, flips, seed, len(LIBRARIES)) if flips else train, test


@cache
def texts(library: str) -> list[list[str]]:
    """The first words of docstrings of a library, without its name."""
    spec = importlib.util.find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{library} is not installed: the texts are its docstrings")
    files = sorted(Path(spec.submodule_search_locations[0]).rglob("*.py"))
    found: list[list[str]] = []
    for number in np.random.default_rng(0).permutation(len(files))[:FILES]:
        if len(found) >= TEXTS:
            break
        for node in ast.walk(ast.parse(files[number].read_text(errors="replace"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)):
                words = [word for word in re.findall("[a-z]+", text.lower()) if library not in word]
                found += [words[:WORDS]] if len(words) >= FEWEST else []
    return found


def summarise(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Gains over cross-entropy of the same seed, in points; the table of the docs."""
    if not rows:
        raise SystemExit("there are no rows: name their files with --rows")
    base, wide = LOSSES
    found = {tuple(row[key] for key in ("network", "lr", "flips", "loss", "seed")): row for row in rows}
    gains: list[dict[str, Any]] = []
    for network, lr, flips in itertools.product(NETWORKS, RATES, FLIPS):
        pairs = [[found.get((network, lr, flips, loss, seed)) for loss in (wide, base)] for seed in SEEDS]
        both = [(one, other) for one, other in pairs if one is not None and other is not None]
        if len(both) < len(SEEDS):
            continue
        points = [100 * (one["test"] - other["test"]) for one, other in both]
        distances = [[row["median distance"] for row in column] for column in zip(*both, strict=True)]
        gains.append(
            {
                **{"network": network, "lr": lr, "flips": flips},
                **{"gain": statistics.fmean(points), "deviation": statistics.stdev(points)},
                "cross-entropy": 100 * statistics.fmean(other["test"] for _, other in both),
                "median distance": statistics.fmean(distances[0]),
                "median distance of cross-entropy": statistics.fmean(distances[1]),
            }
        )
    for row in gains:
        name = f"{row['network']} | {row['lr']:g} | {row['flips']:.0%} | {row['cross-entropy']:.1f}"
        distance = f"{row['median distance']:.2f} | {row['median distance of cross-entropy']:.2f}"
        print(f"| {name} | {row['gain']:.1f} ± {row['deviation']:.1f} | {distance} |".replace("-", "−"))
    origin = {key: rows[-1][key] for key in ("commit", "versions", "hardware")}
    write_json(out, {"name": "WideMargin on text", "rows": gains, **origin})


if __name__ == "__main__":
    main()
