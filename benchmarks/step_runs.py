"""Several runs of `benchmarks/step.py` side by side: every ratio of every run, and a table of medians and ranges.

    python benchmarks/step_runs.py FILE FILE FILE

Ratios of graphs and of memory are the same from machine to machine; those without a graph depend on how fast the
processor launches what the GPU then does. Written to results/bench-step-cuda-runs.json; the table is for the docs.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from step_cost.cases import cases
from step_cost.settings import Settings
from widemargin._io.files import write_json

ROOT = Path(__file__).parent.parent
KINDS = ("ratio", "ratio of graphs", "peak ratio")
COLUMNS = (
    ("ratio", "margin_backward"),
    ("ratio of graphs", "margin_backward, CUDA graph"),
    ("ratio", "with cross-entropy, margin_backward"),
    ("ratio of graphs", "with cross-entropy, CUDA graph"),
    ("ratio", "plain autograd"),
    ("ratio", "a backward per place"),
    ("peak ratio", "margin_backward"),
    ("peak ratio", "plain autograd"),
)


def merged(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that all runs have, in the order of the benchmark, with a number of every run where they have one."""
    by_label = [{row["label"]: row for row in run["rows"]} for run in runs]
    order = [case.label for case in cases(Settings(device="cuda"))]
    shared = [label for label in by_label[0] if all(label in labels for labels in by_label)]
    found = []
    for label in sorted(shared, key=lambda label: order.index(label) if label in order else -1):
        rows = [labels[label] for labels in by_label]
        row: dict[str, Any] = {"label": label}
        for kind in ("milliseconds", *KINDS):
            ways = [way for way in rows[0].get(kind, {}) if all(way in one[kind] for one in rows)]
            if ways:
                row[kind] = {way: [one[kind][way] for one in rows] for way in ways}
        found.append(row)
    return found


def cell(numbers: list[float] | None) -> str:
    """The median, and the range where that is wide."""
    if numbers is None:
        return ""
    low, high, middle = min(numbers), max(numbers), f"{statistics.median(numbers):.2f}"
    return middle if high - low < 0.05 else f"{middle} ({low:.2f} to {high:.2f})"


def main() -> None:
    runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    rows = merged(runs)
    write_json(
        ROOT / "results/bench-step-cuda-runs.json",
        {
            "what": "several runs of `benchmarks/step.py --device cuda`, on machines of one kind: a number of each",
            "runs": [{key: value for key, value in run.items() if key not in ("rows", "goals")} for run in runs],
            "rows": rows,
        },
    )
    print("| |", " | ".join(f"{way}{', peak' if kind.startswith('peak') else ''}" for kind, way in COLUMNS), "|")
    for row in rows:
        print(f"| {row['label']} |", " | ".join(cell(row.get(kind, {}).get(way)) for kind, way in COLUMNS), "|")


if __name__ == "__main__":
    main()
