"""Cost of a training step of margin losses, relative to a step of cross-entropy.

    python benchmarks/step.py                                # on the CPU, tiny networks, about a minute
    python benchmarks/step.py --device cuda                  # the papers' networks, tens of minutes
    python benchmarks/step.py --device cuda --minutes 10 --only WRN

A step is a forward pass and the gradients of the weights. Margin losses are measured by `margin_backward`, by plain
autograd and by a backward pass per place and class; for all classes, exactly and estimated; beside them the Jacobian
regularizer and the scaling with classes, places and batch size. Written after every row to results/bench-step.json, on
a GPU to results/bench-step-cuda.json.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from step_cost import Settings, run

ROOT = Path(__file__).parent.parent
COLUMNS = ("milliseconds", "ratio", "ratio of graphs", "peak ratio")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, help="turns of every method (default: 3, on a GPU 5)")
    parser.add_argument("--steps", type=int, help="steps of a turn (default: 1, on a GPU 5)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no row later than this")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only rows whose label contains TEXT")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the numbers are written")
    given = parser.parse_args(arguments)
    on_cpu = given.device == "cpu"
    rounds, steps = (3, 1) if on_cpu else (5, 5)
    try:
        settings = Settings(
            device=given.device,
            rounds=rounds if given.rounds is None else given.rounds,
            steps=steps if given.steps is None else given.steps,
            minutes=given.minutes,
            only=given.only,
        )
        path = given.out or ROOT / f"results/bench-step{'' if on_cpu else '-cuda'}.json"
        result = run(settings, path, on_row=lambda row: print(formatted(row), flush=True))
    except ValueError as error:
        parser.error(str(error))
    if result["left out"]:
        print("no time was left for:", ", ".join(result["left out"]), file=sys.stderr)
    print("wrote", path)


def formatted(row: dict[str, Any]) -> str:
    """A row of the benchmark as lines of text."""
    lines = [f"{row['label']}, batch {row['batch']}", f"  {'':44}" + "".join(f"{name:>17}" for name in COLUMNS)]
    for name in row.get("milliseconds", {}):
        numbers = (row.get(column, {}).get(name) for column in COLUMNS)
        lines.append(f"  {name:44}" + "".join(f"{'' if n is None else format(n, '.3f'):>17}" for n in numbers))
    lines += [f"  {name}: {reason}" for name, reason in row["failed"].items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
