"""Draw docs/pictures/bench-step.svg and bench-scaling.svg from results/bench-step-cuda-runs.json."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import altair as alt

from widemargin.report.figures import save

ROOT = Path(__file__).parent.parent
WAYS = {
    "margin_backward, CUDA graph": "margin_backward, recorded",
    "margin_backward": "margin_backward",
    "plain autograd": "plain autograd",
    "a backward per place": "a backward per place",
}


def main() -> None:
    rows = json.loads((ROOT / "results/bench-step-cuda-runs.json").read_text())["rows"]
    save(
        steps([row for row in rows if "plain autograd" in row.get("ratio", {}) and "Scaling" not in row["label"]]),
        ROOT / "docs/pictures/bench-step.svg",
    )
    save(scaling([row for row in rows if row["label"].startswith("Scaling")]), ROOT / "docs/pictures/bench-scaling.svg")


def steps(rows: list[dict[str, Any]]) -> alt.LayerChart:
    """Every network a line of dots, on an axis of ratios to cross-entropy; a thin line from the least to the most."""
    found = []
    for row in rows:
        for way, words in WAYS.items():
            numbers = row.get("ratio of graphs" if way.endswith("graph") else "ratio", {}).get(way)
            if numbers is not None:
                middle = statistics.median(numbers)
                ends = {"ratio": middle, "low": min(numbers), "high": max(numbers)}
                found.append({"network": row["label"], "way": words, **ends})
    base = alt.Chart(alt.Data(values=found)).encode(
        y=alt.Y("network:N", sort=[row["label"] for row in rows], title=None),
        color=alt.Color("way:N", sort=list(WAYS.values()), title=None, legend=alt.Legend(columns=2, labelLimit=260)),
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=alt.X(
            "ratio:Q",
            title="a step, relative to cross-entropy's",
            scale=alt.Scale(type="log", domain=[1, 5], nice=False),
        ),
        shape=alt.Shape("way:N", sort=list(WAYS.values()), title=None, legend=None),
        tooltip=["network:N", "way:N", alt.Tooltip("ratio:Q", format=".3f")],
    )
    ranges = base.mark_rule().encode(x="low:Q", x2="high:Q")
    goal = alt.Chart(alt.Data(values=[{"x": 1.1}, {"x": 4 / 3}])).mark_rule(strokeDash=[4, 4]).encode(x="x:Q")
    return alt.layer(goal, ranges, dots).properties(
        width=420, height=30 * len(rows), padding={"left": 30, "right": 5, "top": 5, "bottom": 5}
    )


def scaling(rows: list[dict[str, Any]]) -> alt.HConcatChart:
    """A panel for classes, places and the batch each."""
    panels = []
    for what in ("classes", "places", "batch"):
        found = []
        for row in rows:
            if what not in row["label"]:
                continue
            number = int("".join(letter for letter in row["label"] if letter.isdigit()))
            found += [
                {"number": number, "way": way, "ratio": statistics.median(numbers)}
                for way, numbers in row.get("ratio", {}).items()
                if way != "cross-entropy"
            ]
        if not found:
            continue
        panels.append(
            alt.Chart(alt.Data(values=found))
            .mark_line(point=True)
            .encode(
                x=alt.X("number:Q", title=what, scale=alt.Scale(type="log")),
                y=alt.Y(
                    "ratio:Q",
                    title="relative to cross-entropy" if what == "classes" else None,
                    scale=alt.Scale(type="log"),
                ),
                color=alt.Color("way:N", title=None),
            )
            .properties(width=260, height=180)
        )
    return alt.hconcat(*panels)


if __name__ == "__main__":
    main()
