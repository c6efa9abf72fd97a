"""A paper's figure redrawn from the rows of a study's result, as its `figures` declare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard

from widemargin.report import alt
from widemargin.report.layers import HEIGHT, WIDTH, cycled, digits, inline, y_axis
from widemargin.report.schema import Json

StudyResult: TypeAlias = Mapping[str, Json]
"""The content of a result file, as `studies.result` writes it."""
Figure: TypeAlias = Mapping[str, Json]
"""An entry of `figures` in a result file."""
Point: TypeAlias = dict[str, Json]
"""`arm`, `x`, `mean`, `low` and `high` (one standard deviation), `seeds`, and `split` where the figure has one."""


def points(result: StudyResult, figure: Figure) -> list[Point]:
    """The points of a figure: mean ± sd over seeds for every arm and x; in a scatter plot, one point per row."""
    groups: dict[tuple[str, Json, str | None, int | None], list[float]] = {}
    split = figure.get("split")
    for arm in _arms(result, figure):
        for number, row in enumerate(result["rows"]):
            x = row.get(figure["x"])
            if row["arm"] != arm or x is None or not _is_number(row.get(figure["y"])) or not _agrees(row, figure):
                continue
            apart = number if figure["kind"] == "scatter" else None
            key = (arm, x, None if split is None else str(row.get(split)), apart)
            groups.setdefault(key, []).append(float(row[figure["y"]]))
    found = []
    for (arm, x, part, _), values in groups.items():
        mean = statistics.fmean(values)
        sd = statistics.stdev(values) if len(values) > 1 else 0.0
        point = {"arm": arm, "x": x, "mean": digits(mean), "low": digits(mean - sd), "high": digits(mean + sd)}
        found.append({**point, "seeds": len(values)} | ({} if part is None else {"split": part}))
    return found


PATTERNS = ([1, 0], [6, 4], [2, 3], [8, 3, 2, 3], [14, 4], [1, 2], [6, 2, 1, 2, 1, 2])
"""Dashes of lines: the first is solid."""


def chart(result: StudyResult, figure: Figure) -> alt.LayerChart:
    """The chart of a figure; arms that are not in the paper are dashed, unless dashes mark the values of `split`.

    A figure of a single arm has a colour and a shape for each value of `split`.
    """
    kind, split, title = figure["kind"], figure.get("split"), figure.get("y_title") or figure["y"]
    rows = points(result, figure)
    if kind == "bars" or not all(_is_number(row["x"]) for row in rows):
        rows = [{**row, "x": f"{row['x']:g}" if _is_number(row["x"]) else str(row["x"])} for row in rows]
    arms = [arm for arm in _arms(result, figure) if any(row["arm"] == arm for row in rows)]
    values = (
        sorted({row["split"] for row in rows}, key=lambda value: (len(value), value)) if split else []
    )  # 2, then 10
    by_arm, by_split = ("arm:N", None, arms), ("split:N", split, values)
    field, heading, names = by_split if split and len(arms) == 1 and kind != "bars" else by_arm
    scale = alt.Scale(type="log" if figure.get("log_y") else "linear", zero=kind == "bars")
    y = y_axis("mean", title, percent=figure.get("percent"), scale=scale)
    color = alt.Color(field, title=heading, scale=alt.Scale(domain=names))
    base = inline(rows).encode(x=_x(figure, rows), y=y, color=color)
    bars = base.mark_rule(strokeWidth=1.2, opacity=0.6).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    if kind == "bars":
        offset = [] if figure["x"] == "arm" else [alt.XOffset("arm:N", scale=alt.Scale(domain=arms))]
        layers = [layer.encode(*offset) for layer in (base.mark_bar(), bars)]
    elif kind == "lines":
        ours = {arm["name"] for arm in result["arms"] if arm.get("ours")}
        patterns = PATTERNS if split else [PATTERNS[arm in ours] for arm in arms]
        # Vega-Lite merges legends of one domain, and would dash the symbols: one more name keeps the domains apart.
        dashes = cycled([*(values if split else arms), ""], patterns)
        legend = alt.Legend(symbolType="stroke", symbolSize=500, values=values) if names is arms and split else None
        dash = alt.StrokeDash("split:N" if split else "arm:N", title=split, scale=dashes, legend=legend)
        dots = base.mark_point(filled=True, size=45).encode(alt.Shape(field, title=heading, scale=cycled(names)))
        layers = [base.mark_line().encode(dash), bars, dots]
    else:
        field, heading, names = by_split if split else by_arm
        shape = alt.Shape(field, title=heading, scale=cycled(names))
        layers = [base.mark_point(filled=True, size=35, opacity=0.75).encode(shape)]
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT + 60)


def _x(figure: Figure, rows: Sequence[Point]) -> alt.X:
    title = figure.get("x_title") or figure["x"]
    if any(isinstance(row["x"], str) for row in rows):
        axis = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ', ')")  # long names in two lines
        return alt.X("x:N", title=title, sort=list(dict.fromkeys(row["x"] for row in rows)), axis=axis)
    scale = (
        {"type": "log", "nice": False} if figure.get("log_x") else {"nice": figure["kind"] == "scatter", "zero": False}
    )
    return alt.X("x:Q", title=title, scale=alt.Scale(**scale), axis=alt.Axis(tickCount=8))


def _arms(result: StudyResult, figure: Figure) -> list[str]:
    there = [arm["name"] for arm in result["arms"]]
    return there if figure.get("arms") is None else [name for name in figure["arms"] if name in there]


def _agrees(row: Mapping[str, Json], figure: Figure) -> bool:
    where = figure.get("where", {})
    if "curve" in row and "curve" not in where:
        return False
    return all(key in row and _equal(row[key], value) for key, value in where.items())


def _equal(value: object, wanted: object) -> bool:
    if isinstance(wanted, list):
        return any(_equal(value, one) for one in wanted)
    if _is_number(value) and _is_number(wanted):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(value == wanted)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
