"""A paper's figure redrawn from the rows of a study's result, as its `figures` declare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypeGuard

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
    """The points of a figure: mean ± sd over living seeds for every arm and x; in a scatter plot, one point per row.

    `dead` counts the seeds that ended at guessing, `mean of all` has them too, and `paper` is the paper's number.
    """
    dead = [trial for trial in result.get("dead trials", []) if figure["kind"] != "scatter"]
    printed = {
        _key(row, figure): float(row[figure["y"]])
        for _, row in _drawn(result, figure, result.get("paper", []))
        if figure["kind"] != "scatter" and figure.get("split") in (None, *row)
    }
    groups: dict[_Key, list[tuple[float, bool]]] = {}
    for number, row in _drawn(result, figure, result["rows"]):
        apart = number if figure["kind"] == "scatter" else None
        died = any(_agrees_with(row, trial) for trial in dead)
        groups.setdefault((*_key(row, figure), apart), []).append((float(row[figure["y"]]), died))
    for key in printed:
        groups.setdefault((*key, None), [])  # a number of the paper that nothing was run for
    found = []
    for (arm, x, part, _), values in groups.items():
        living = [value for value, died in values if not died]
        mean, sd = _mean_sd(living)
        whole, whole_sd = _mean_sd([value for value, _ in values])
        point: Point = {"arm": arm, "x": x, "mean": None, "sd": sd, "seeds": len(living)}
        if mean is not None:
            point |= {"mean": digits(mean), "low": digits(mean - sd), "high": digits(mean + sd)}
        point |= {"dead": len(values) - len(living), "mean of all": whole, "sd of all": whole_sd}
        found.append({**point, "paper": printed.get((arm, x, part))} | ({} if part is None else {"split": part}))
    if _y_scale(figure, found) == "log":
        for point in found:
            if point["mean"] is not None and point["low"] <= 0:
                point["low"] = point["mean"]  # the lower end of the bar would be ≤ 0, which a log axis can't show
    return found


def has_rows(result: StudyResult, figure: Figure) -> bool:
    """Whether the result has rows for the figure: an older run may lack a curve."""
    return bool(_drawn(result, figure, result["rows"]))


_Key: TypeAlias = tuple[str, Json, str | None, int | None]


def _key(row: Mapping[str, Json], figure: Figure) -> tuple[str, Json, str | None]:
    split = figure.get("split")
    return row["arm"], row[figure["x"]], None if split is None else str(row.get(split))


def _drawn(
    result: StudyResult, figure: Figure, rows: Sequence[Mapping[str, Json]]
) -> list[tuple[int, Mapping[str, Json]]]:
    """The rows that a figure shows, arm by arm, with their numbers."""
    return [
        (number, row)
        for arm in _arms(result, figure)
        for number, row in enumerate(rows)
        if row["arm"] == arm and row.get(figure["x"]) is not None
        if _is_number(row.get(figure["y"])) and _agrees(row, figure)
    ]


def _mean_sd(values: Sequence[float]) -> tuple[float | None, float]:
    return (statistics.fmean(values) if values else None), (statistics.stdev(values) if len(values) > 1 else 0.0)


def _agrees_with(row: Mapping[str, Json], trial: Mapping[str, Json]) -> bool:
    return all(key in row and _equal(row[key], value) for key, value in trial.items())


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
    measured = [row for row in rows if row["mean"] is not None]
    scale = alt.Scale(type=_y_scale(figure, measured), zero=kind == "bars")
    y = y_axis("mean", title, percent=figure.get("percent"), scale=scale, at=_powers(figure, measured))
    color = alt.Color(field, title=heading, scale=alt.Scale(domain=names))
    base = inline(measured).encode(x=_x(figure, rows), y=y, color=color)
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
    if kind != "scatter":
        layers += _marks(figure, rows, base.properties(data=alt.InlineData(values=rows)), arms)
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT + 60)


def _marks(figure: Figure, rows: Sequence[Point], base: alt.Chart, arms: Sequence[str]) -> list[alt.Chart]:
    """Diamonds at the paper's numbers, and crosses where seeds died: at the bottom edge where all did."""
    beside = figure["kind"] == "bars" and figure["x"] != "arm"
    offset = [alt.XOffset("arm:N", scale=alt.Scale(domain=list(arms)))] if beside else []
    layers = []
    if any(row["paper"] is not None for row in rows):
        over = inline(rows).encode(x=_x(figure, rows)) if figure["kind"] == "bars" else base  # a bar hides its colour
        diamonds = over.transform_filter("isValid(datum.paper)").encode(*offset, y=alt.Y("paper:Q"))
        layers.append(diamonds.mark_point(shape="diamond", size=110, strokeWidth=1.8, style="edge"))
    crosses = base.transform_calculate(label="'✕' + datum.dead").encode(*offset, text=alt.Text("label:N"))
    if any(row["dead"] and row["mean"] is not None for row in rows):
        some = crosses.transform_filter("datum.dead > 0 && isValid(datum.mean)")
        layers.append(some.mark_text(dx=14, dy=-10, fontWeight="bold"))
    if lone := [row for row in rows if row["dead"] and row["mean"] is None]:
        all_died = crosses.properties(data=alt.InlineData(values=lone if beside else _side_by_side(lone)))
        look = {"dx": 0 if beside else {"expr": "datum.shift"}, "dy": -7, "fontWeight": "bold"}
        layers.append(all_died.encode(y=alt.value("height")).mark_text(**look))
    return layers


def _side_by_side(rows: Sequence[Point]) -> list[Point]:
    """The rows with shifts in pixels, so that crosses of one x do not hide each other."""
    groups = [[row for row in rows if row["x"] == x] for x in dict.fromkeys(row["x"] for row in rows)]
    return [{**row, "shift": 26 * (i - (len(group) - 1) / 2)} for group in groups for i, row in enumerate(group)]


def _y_scale(figure: Figure, rows: Sequence[Point]) -> Literal["linear", "log", "symlog"]:
    """A logarithmic axis is linear around 0 where there are values below it."""
    if not figure.get("log_y"):
        return "linear"
    return "log" if all(row["mean"] is None or row["mean"] > 0 for row in rows) else "symlog"


def _powers(figure: Figure, rows: Sequence[Point]) -> list[float]:
    """Ticks of a logarithmic y-axis: powers of ten; of a symlog one on both sides of 0, Vega has no defaults for it."""
    kind = _y_scale(figure, rows)
    if kind == "log":
        decades = _decades([row[key] for row in rows for key in ("low", "mean", "high")])
        return decades if len(decades) > 2 else []
    if kind == "linear":
        return []
    step = max(1, round(math.log10(max(10.0, *(abs(float(row["mean"])) for row in rows))) / 4))
    powers = [10.0 ** (step * k) for k in range(1, 5)]
    return [*(-power for power in reversed(powers)), 0.0, *powers]


def _x(figure: Figure, rows: Sequence[Point]) -> alt.X:
    title = figure.get("x_title") or figure["x"]
    if any(isinstance(row["x"], str) for row in rows):
        axis = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ', ')")  # long names in two lines
        return alt.X("x:N", title=title, sort=list(dict.fromkeys(row["x"] for row in rows)), axis=axis)
    axis = {"tickCount": 8, "labelFlush": False}
    if not figure.get("log_x"):
        scale = alt.Scale(nice=figure["kind"] == "scatter", zero=False)
        return alt.X("x:Q", title=title, scale=scale, axis=alt.Axis(**axis))
    values = [float(row["x"]) for row in rows if row["x"] > 0]
    inside = [power for power in _decades(values) if min(values) <= power <= max(values)]
    axis |= {"values": inside, "format": "~g"} if len(inside) > 1 else {}
    return alt.X("x:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(**axis))


def _decades(values: Sequence[float]) -> list[float]:
    """The powers of ten from below the positive values to above them."""
    logarithms = [math.log10(value) for value in values if value > 0]
    if not logarithms:
        return []
    return [10.0**k for k in range(math.floor(min(logarithms)), math.ceil(max(logarithms)) + 1)]


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
