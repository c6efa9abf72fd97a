"""Charts of brackets: the distance of each sample between two bounds, and robust accuracy as a band."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter

from widemargin.report import alt
from widemargin.report.layers import ChartRow, arm_chart, digits, figure, hover, tips, x_axis, y_axis
from widemargin.report.names import label_of, number, share, with_norm
from widemargin.report.schema import Result
from widemargin.report.tables import TextTable, evenly, text_table


def distances(result: Result) -> alt.LayerChart:
    """A line per sample from its certified to its attacked distance, with a dot where the linearised one lies.

    The samples of each arm are in the order of their upper bounds; those without one come last, with a dashed line. Of
    more than `MOST` samples, a line is the median of several that follow each other.
    """
    rows = binned(distance_rows(result))
    fields = {"network": "arm", "sample": "rank:~r", "certified": "lower:.3~g", "attacked": "shown"}
    several = max((row["samples"] for row in rows), default=1)
    title = "samples, by their upper bound" + (f"; a line is the median of {several}" if several > 1 else "")
    x = x_axis("place", title, whole=True, zero=False, padding=8)
    base = arm_chart(result).encode(x=x, tooltip=tips({**fields, "linearised": "linear"}))
    y = y_axis("lower", with_norm("distance to the boundary", result.get("norm", "")))
    dashes = alt.StrokeDash("bound:N", title=None, scale=alt.Scale(domain=["found", "none"], range=[[1, 0], [2, 3]]))
    lines = base.encode(y=y, y2="upper:Q", strokeDash=dashes)
    dots = base.transform_filter("isValid(datum.linearized)").encode(y="linearized:Q")
    layers = [
        lines.mark_rule(strokeWidth=2.5, opacity=0.45, strokeCap="butt", clip=True),
        dots.mark_point(filled=True, size=22, opacity=0.95, clip=True),
    ]
    return figure(layers, rows, "The distance of each sample", zoom=True)


def distance_rows(result: Result) -> list[ChartRow]:
    """The data of `distances`: a row per arm and correctly classified sample."""
    known = [u for arm in result["arms"] for u in arm.get("bracket", {}).get("upper", []) if u is not None]
    top = max(known, default=1.0)
    rows = []
    arms = [arm for arm in result["arms"] if "bracket" in arm]
    for position, arm in enumerate(arms):
        found = arm["bracket"]
        columns = zip(found["lower"], found["upper"], found["linearized"], strict=True)
        kept = [column for column in columns if column[1] != 0]
        kept.sort(key=lambda column: (column[1] is None, column[1] or 0.0))
        for rank, (lower, upper, linear) in enumerate(kept, start=1):
            rows.append(
                {
                    "arm": label_of(arm),
                    "rank": rank,
                    "samples": 1,
                    "place": digits(rank + 0.7 * position / len(arms)),  # beside each other, not on top
                    "lower": digits(lower),
                    "upper": digits(max(top, lower) if upper is None else upper),
                    "bound": "none" if upper is None else "found",
                    "shown": "nothing found" if upper is None else number(upper),
                    "linearized": None if linear is None else digits(linear),
                    "linear": "–" if linear is None else number(linear),
                }
            )
    return rows


MOST = 1000
"""Lines of an arm in the chart of distances: more make the page slow and show nothing more."""


def binned(rows: list[ChartRow]) -> list[ChartRow]:
    """The rows, those of an arm with more than `MOST` as medians of neighbours; rows without an upper bound apart."""
    counts = Counter(row["arm"] for row in rows)
    found: list[ChartRow] = []
    for (arm, _), group in itertools.groupby(rows, key=lambda row: (row["arm"], row["bound"])):
        size, part = -(-counts[arm] // MOST), list(group)
        if size == 1:
            found += part
            continue
        for start in range(0, len(part), size):
            some = part[start : start + size]
            lower, upper, linear = (_median(some, key) for key in ("lower", "upper", "linearized"))
            texts = {"linear": "–" if linear is None else number(linear)}
            texts |= {"shown": number(upper)} if some[0]["bound"] == "found" else {}
            medians = {"lower": lower, "upper": upper, "linearized": linear}
            rounded = {key: None if value is None else digits(value) for key, value in medians.items()}
            found.append({**some[len(some) // 2], "samples": len(some), **rounded, **texts})
    return found


def robust(result: Result) -> alt.LayerChart:
    """Accuracy over ε as a band, from certified to attacked, per arm."""
    rows = [
        {"arm": label_of(arm)} | {key: digits(point[key]) for key in ("epsilon", "certified", "attacked")}
        for arm in result["arms"]
        for point in arm.get("bracket", {}).get("band", [])
    ]
    bands = arm_chart(result).encode(x=x_axis("epsilon", with_norm("ε", result.get("norm", ""))))
    y = y_axis("certified", "accuracy", percent=True, stack=None, scale=alt.Scale(domain=[0, 1]))
    fields = {"network": "arm", "ε": "epsilon:.3~g", "certified": "certified:.1%", "attacked": "attacked:.1%"}
    layers = [
        bands.encode(y=y, y2="attacked:Q").mark_area(opacity=0.18, clip=True),
        bands.encode(y=y).mark_line(clip=True),
        bands.encode(y="attacked:Q").mark_line(clip=True, strokeDash=[5, 4]),
        hover(bands.encode(y="attacked:Q"), fields),
    ]
    return figure(layers, rows, "Robust accuracy, certified to attacked", zoom=False)


def of_distances(result: Result) -> TextTable:
    """The medians behind the chart of distances, over the samples that are classified right."""
    heads = ["samples", "right", "without an upper bound", "median certified", "median attacked", "median linearised"]
    rows = []
    for arm in result["arms"]:
        if "bracket" in arm:
            mine = distance_rows({**result, "arms": [arm]})
            closed = [row for row in mine if row["bound"] == "found"]
            texts = [f"{len(arm['bracket']['lower']):,}", f"{len(mine):,}", f"{len(mine) - len(closed):,}"]
            texts += [number(_median(closed, key)) for key in ("lower", "upper", "linearized")]
            rows.append((label_of(arm), texts))
    return text_table(heads, rows)


def of_band(result: Result) -> TextTable:
    """Certified and attacked accuracy at about six of the ε of each arm."""
    rows = []
    for arm in result["arms"]:
        band = arm.get("bracket", {}).get("band", [])
        for name in ("certified", "attacked") if band else ():
            texts = [f"{share(point[name])} at {number(point['epsilon'])}" for point in evenly(band, 6)]
            rows.append((f"{label_of(arm)}, {name}", texts))
    most = max((len(texts) for _, texts in rows), default=0)
    rows = [(label, texts + ["–"] * (most - len(texts))) for label, texts in rows]
    return text_table([f"point {i + 1}" for i in range(most)], rows)


def _median(rows: list[ChartRow], key: str) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.median(values) if values else None
