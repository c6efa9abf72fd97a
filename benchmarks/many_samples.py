"""The weight of `WideMargin` on all of CIFAR-10: the networks of study W4 with other strengths, one seed each.

    python benchmarks/many_samples.py --data FOLDER --device cuda --networks ResNet-18 --weights 0 0.0044 0.02 0.067 0.2

`FOLDER` holds `cifar10`. A weight of 0 is cross-entropy. The accuracy on validation samples decides; test accuracy, the
mean distance and the accuracy under PGD at ε = 0.01·√D are shown. Rows are added to results/wide-margin-weights.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.studies.tasks import augmented
from widemargin.studies.trial import Trial, TrialContext
from widemargin.studies.widemargin.cifar10 import NETWORKS, W4

OUT = Path("results/wide-margin-weights.json")
EPSILON = 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=[*NETWORKS])
    parser.add_argument("--weights", nargs="+", type=float, default=[0.0, 0.0044, 0.02, 0.067, 0.2])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    for network in given.networks:
        for seed in given.seeds:
            for weight in given.weights:
                found = run(network, weight, seed, given.epochs, TrialContext(device=given.device, root=given.data))
                print(found, flush=True)
                add(found, given.out, given.device)


def run(network: str, weight: float, seed: int, epochs: int, context: TrialContext) -> dict[str, Any]:
    """Train one network; the weight is that of the second term for 45,000 samples."""
    loss = {"name": "wide-margin", "strength": weight, "share": 1.0, "samples": 1}
    chosen = {"loss": loss} if weight else {"loss": {"name": "cross-entropy"}}
    settings = {**W4.settings, **NETWORKS[network], **chosen, "epochs": epochs}
    settings["data"] = {**settings["data"], "flips": 0.0}
    named: dict[str, Any] = {"task": "augmented", "stage": "final", "study": "W4", "scale": "budget"}
    trial = Trial(**named, arm=str(weight), version=augmented.VERSION, settings=settings, seed=seed)
    started = time.perf_counter()
    row = augmented.run(trial, context)
    job = {"network": network, "weight": weight, "seed": seed, "epochs": epochs}
    return {**job, **figures(row), "seconds": time.perf_counter() - started}


def figures(row: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a row of the task."""
    under = next(point["accuracy"] for point in row["points"] if point["at"]["epsilon"] == EPSILON)
    names = ("validation", "accuracy", "train accuracy", "mean distance")
    return {**{name: row[name] for name in names}, "accuracy under PGD": under}


def add(row: dict[str, Any], out: Path, device: str) -> None:
    """Append a row to the result file, or begin one."""
    known = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"name": "weights of WideMargin"}
    write_json(out, {**known, "rows": [*known.get("rows", []), row], **provenance(device=device)})


if __name__ == "__main__":
    main()
