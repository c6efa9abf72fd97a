"""A paper's figure redrawn from the rows of a study's result, as its `figures` declare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from widemargin._io.optional import import_optional
from widemargin.report.layers import HEIGHT, WIDTH, cycled, digits
from widemargin.report.schema import Json

if TYPE_CHECKING:
    import altair as alt

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


def chart(result: StudyResult, figure: Figure) -> alt.LayerChart:
    """The chart of a figure; arms that are not in the paper are dashed, unless dashes mark the values of `split`."""
    alt = import_optional("altair")
    rows = points(result, figure)
    if figure["kind"] == "bars" or not all(_is_number(row["x"]) for row in rows):
        rows = [{**row, "x": f"{row['x']:g}" if _is_number(row["x"]) else str(row["x"])} for row in rows]
    arms = [arm for arm in _arms(result, figure) if any(row["arm"] == arm for row in rows)]
    data = alt.InlineData(values=rows)
    y_axis = alt.Axis(tickCount=5, **({"format": ".0%"} if figure.get("percent") else {}))
    title = figure.get("y_title") or figure["y"]
    y = alt.Y(
        "mean:Q",
        title=title,
        scale=alt.Scale(type="log" if figure.get("log_y") else "linear", zero=figure["kind"] == "bars"),
        axis=y_axis,
    )
    color = alt.Color("arm:N", title=None, scale=alt.Scale(domain=arms))
    if figure.get("split") and figure["kind"] == "lines" and len(arms) == 1:  # a colour for each value, then
        color = alt.Color("split:N", title=figure["split"], scale=alt.Scale(domain=_values(rows)))
    base = alt.Chart(data).encode(x=_x(figure, rows), y=y, color=color)
    shape = alt.Shape("arm:N", title=None, scale=cycled(arms))
    bars = base.mark_rule(strokeWidth=1.2, opacity=0.6).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    if figure["kind"] == "lines":
        dots = base.mark_point(filled=True, size=45).encode(shape=shape)
        layers = [_dashed(base.mark_line(), result, figure, arms), bars, dots]
    elif figure["kind"] == "bars":
        offset = [] if figure["x"] == "arm" else [alt.XOffset("arm:N", scale=alt.Scale(domain=arms))]
        layers = [layer.encode(*offset) for layer in (base.mark_bar(), bars)]
    else:
        marks = base.mark_point(filled=True, size=35, opacity=0.75)
        layers = [marks.encode(*_of_split(rows, figure["split"], arms)) if figure.get("split") else marks.encode(shape)]
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT + 60)


def _x(figure: Figure, rows: Sequence[Point]) -> alt.X:
    alt = import_optional("altair")
    title = figure.get("x_title") or figure["x"]
    if any(isinstance(row["x"], str) for row in rows):
        return alt.X(
            "x:N", title=title, sort=list(dict.fromkeys(row["x"] for row in rows)), axis=alt.Axis(labelAngle=0)
        )
    scale = (
        alt.Scale(type="log", nice=False)
        if figure.get("log_x")
        else alt.Scale(nice=figure["kind"] == "scatter", zero=False)
    )
    return alt.X("x:Q", title=title, scale=scale, axis=alt.Axis(tickCount=8))


def _of_split(rows: Sequence[Point], split: str, arms: Sequence[str]) -> list[alt.Shape | alt.Color]:
    """In a scatter plot each value of `split` has a shape, and with a single arm also a colour."""
    alt = import_optional("altair")
    values = _values(rows)
    found = [alt.Shape("split:N", title=split, scale=cycled(values))]
    return found if len(arms) > 1 else [*found, alt.Color("split:N", title=split, scale=alt.Scale(domain=values))]


def _values(rows: Sequence[Point]) -> list[str]:
    """The values of `split`, 2 before 10."""
    return sorted({row["split"] for row in rows}, key=lambda value: (len(value), value))


def _dashed(lines: alt.Chart, result: StudyResult, figure: Figure, arms: Sequence[str]) -> alt.Chart:
    alt = import_optional("altair")
    patterns = [[1, 0], [6, 4], [2, 3], [8, 3, 2, 3], [14, 4], [1, 2], [6, 2, 1, 2, 1, 2]]
    if figure.get("split"):
        scale = cycled(_values(points(result, figure)), patterns)
        return lines.encode(strokeDash=alt.StrokeDash("split:N", title=figure["split"], scale=scale))
    ours = {arm["name"] for arm in result["arms"] if arm.get("ours")}
    scale = alt.Scale(domain=list(arms), range=[patterns[arm in ours] for arm in arms])
    return lines.encode(strokeDash=alt.StrokeDash("arm:N", title=None, scale=scale))


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
