"""What is it that makes a margin loss stand attacks? From elsayed's printed loss to ours, a step at a time: E5, E6, E9.

    python benchmarks/attacks_tried.py --data-root FOLDER --device cuda --workers 8

In E5 and E6 the printed l_inf loss is below cross-entropy and ours is above it. They differ in the scores (softmax with
γ = 200, or logits with γ in the units of the input, a clip at γ and a searched weight of cross-entropy), the optimizer
and the form. All with E5's budget: MNIST, 4,000 steps, margins against the strongest class, 3 search cells, attacks on
2,000 test images; 3 seeds. Written to results/attacks-tried.json; finished trials are kept and not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path
from typing import Any

from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.studies import engines
from widemargin.studies.elsayed import mnist
from widemargin.studies.elsayed.trained_on_all import COUNTS, declare
from widemargin.studies.run import run
from widemargin.studies.schema import Arm, Scale, ScaleName, Study
from widemargin.studies.trial import TrialContext

NORM = "l_inf"
SIZES = (0.1, 0.2)
SIGMAS = (0.3, 0.5)
MEASURE: tuple[dict[str, Any], ...] = (
    {"kind": "attack", "attack": "fgsm", "epsilons": SIZES},
    {"kind": "attack", "attack": "ifgsm", "epsilons": SIZES},
    {"kind": "noise", "sigmas": SIGMAS},
)


def _with(arm: Arm, name: str, optimizer: dict[str, Any], rates: tuple[float, float]) -> Arm:
    return dataclasses.replace(
        arm,
        name=name,
        settings={**arm.settings, "optimizer": optimizer},
        search={**arm.search, "optimizer.lr": rates},
    )


def arms() -> tuple[Arm, ...]:
    """From the paper's to ours."""
    printed, logits = mnist.margin(NORM), mnist.margin_of_logits(NORM)
    sgd = {"name": "sgd", "lr": 0.01, "momentum": 0.9}
    return (
        mnist.CROSS_ENTROPY,
        dataclasses.replace(printed, name="softmax, RMSProp (printed)"),
        _with(printed, "softmax, SGD", sgd, (0.01, 0.001)),
        _with(logits, "logits, RMSProp", {"name": "rmsprop", "lr": 0.001}, (0.001, 0.0003)),
        dataclasses.replace(logits, name="logits, SGD"),
        dataclasses.replace(mnist.ours(NORM), name="logits, SGD, scale-free (ours)"),
    )


def study(small: bool) -> Study:
    """The arms above with what E5, E6 and E9 measure."""
    base = declare(
        id="E5", source="elsayed, Fig. 4, 5, 7", title="Tried", question="?", measure=MEASURE, claims=(), figures=()
    )
    scale: ScaleName = "smoke" if small else "budget"
    count = {"count": COUNTS[scale]}
    settings = {"steps": 4000, "measure": [{**one, **count} for one in MEASURE]}
    if small:
        settings = {**mnist.SMALL, "measure": settings["measure"]}
    every = arms()
    one = Scale(
        minutes=5,
        settings=settings,
        of_arms=mnist.one_class(every),
        seeds=1 if small else 3,
        cells=1 if small else 3,
        note="as E5",
    )
    paper = dataclasses.replace(one, seeds=3)
    return dataclasses.replace(base, arms=every, scales={"smoke": one, "quick": one, "budget": one, "paper": paper})


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An arm a line: means over seeds, in percent, and their standard deviations."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        curve = row.get("curve")
        size = row.get("epsilon", row.get("sigma"))
        metric = "clean" if curve is None else f"{curve} {size:g}"
        if row.get("accuracy") is not None:
            found.setdefault(row["arm"], {}).setdefault(metric, []).append(100 * row["accuracy"])
    return [
        {"arm": arm, **{metric: [statistics.fmean(v), statistics.pstdev(v)] for metric, v in metrics.items()}}
        for arm, metrics in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/attacks-tried"))
    parser.add_argument("--out", type=Path, default=Path("results/attacks-tried.json"))
    parser.add_argument("--small", action="store_true", help="digits and 2 steps, to see that it works")
    given = parser.parse_args()
    context = TrialContext(device=given.device, root=given.data_root, weights=given.runs / "weights")
    engine = engines.engine("workers", count=given.workers) if given.workers > 1 else engines.one_by_one
    found = run(
        study(given.small),
        "smoke" if given.small else "budget",
        folder=given.runs,
        context=context,
        engine=engine,
    )
    lines = table(found["rows"])
    for line in lines:
        print(line.pop("arm").ljust(34), {metric: f"{mean:.1f} ± {sd:.1f}" for metric, (mean, sd) in line.items()})
    if not given.small:
        write_json(
            given.out,
            {
                "what": "mean and standard deviation over seeds of test accuracies, in percent",
                "table": table(found["rows"]),
                "chosen": found["chosen"],
                "seeds": found["seeds"],
                "complete": found["complete"],
                **provenance(given.device),
            },
        )


if __name__ == "__main__":
    main()
