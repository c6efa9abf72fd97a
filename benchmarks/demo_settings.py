"""The demo's settings, chosen on images that the demo never sees: results/demo-settings.json.

    python benchmarks/demo_settings.py --workers 2

Of the 600 images of digits that the demo leaves out, 200 to train on and 400 to validate on. Every method gets the same
budget: eight settings, three seeds each, 60 epochs. The best mean validation accuracy wins; the demo
(`widemargin/cli/five_losses.py`) has the winners.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from widemargin import losses, regularizers, training
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.cli import five_losses
from widemargin.cli.five_losses import LAYERS, DemoMethod
from widemargin.margins.measurement import accuracy

EPOCHS, SEEDS = 60, (0, 1, 2)
FEW = (1e-3, 2e-3, 5e-3, 1e-2)
MANY = (5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 2e-2)  # for methods without a number of their own


def settings() -> Iterator[tuple[str, str, DemoMethod]]:
    """Name of the method, the setting in words, and the method with it."""
    methods = {method.name: method for method in five_losses.METHODS}
    for name in ("cross-entropy", "wide-margin"):
        for lr in MANY:
            yield name, f"lr {lr:g}", dataclasses.replace(methods[name], lr=lr)
    for lr in FEW:
        for r, theta in ((2.0, 1.0), (1.2, 0.7)):
            loss: Any = losses.odn(r=r, theta=theta)
            yield "odn", f"lr {lr:g}, r {r:g}, theta {theta:g}", dataclasses.replace(methods["odn"], loss=loss, lr=lr)
        for gamma in (0.5, 1.0):
            loss = losses.large_margin(p=2.0, gamma=gamma, at=LAYERS, classes=1)
            method = dataclasses.replace(methods["large-margin"], loss=loss, lr=lr)
            yield "large-margin", f"lr {lr:g}, gamma {gamma:g}", method
        for weight in (0.1, 0.3):
            method = dataclasses.replace(
                methods["jacobian"], regularizers=(regularizers.Jacobian(weight=weight),), lr=lr
            )
            yield "jacobian", f"lr {lr:g}, weight {weight:g}", method


def run(job: tuple[int, int]) -> tuple[int, int, float]:
    """Validation accuracy of one setting with one seed."""
    number, seed = job
    torch.set_num_threads(1)
    method = list(settings())[number][2]
    train, validation = five_losses.split(five_losses.images()[1], seed)
    fitted = five_losses.fit(method, train, epochs=EPOCHS, seed=seed, measure=training.Measure(every=None))
    return number, seed, accuracy(fitted.model, validation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "demo-settings.json")
    options = parser.parse_args()
    every = list(settings())
    found: list[dict[str, Any]] = [{"method": name, "setting": words, "validation": []} for name, words, _ in every]
    jobs = [(number, seed) for seed in SEEDS for number in range(len(every))]
    with mp.get_context("spawn").Pool(options.workers) as pool:
        for done, (number, seed, share) in enumerate(pool.imap_unordered(run, jobs), 1):
            found[number]["validation"].append([seed, share])
            print(
                f"{done}/{len(jobs)} {found[number]['method']}, {found[number]['setting']}: {share:.4f}",
                flush=True,
            )
    for row in found:
        row["validation"] = [one for _, one in sorted(row["validation"])]
        row["mean"] = statistics.mean(row["validation"])
    chosen = {
        name: max((row for row in found if row["method"] == name), key=_mean)["setting"] for name in _names(found)
    }
    print(chosen)
    budget = {
        "epochs": EPOCHS,
        "images": five_losses.IMAGES,
        "validation images": five_losses.SETTINGS - five_losses.IMAGES,
        "seeds": list(SEEDS),
    }
    write_json(options.out, {"settings": budget, "chosen": chosen, "rows": found, **provenance("cpu")})


def _mean(row: dict[str, Any]) -> float:
    return float(row["mean"])


def _names(found: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in found))


if __name__ == "__main__":
    main()
