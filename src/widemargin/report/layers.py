"""Layers, tooltips and colours that the charts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from widemargin.report import alt
from widemargin.report.names import label_of
from widemargin.report.schema import Json, Result
from widemargin.report.theme import SHAPES

ChartRow: TypeAlias = dict[str, Json]
"""A row of the data of a chart."""

Tips: TypeAlias = dict[str, str]
"""Lines of a tooltip: names, each with a field, and after a colon the format of its numbers: "epsilon:.3~g"."""

WIDTH, HEIGHT = 680, 300
SHOWN = "indexof(hidden, datum.arm) < 0"  # the page writes the arms that are switched off into `hidden`
TICKS = {"expr": "ceil(width / 80)"}  # fewer on a phone
HOVER = "hover"  # the name of the layer that only a pointer needs
ZOOM = "wheel![event.ctrlKey || event.metaKey]"  # a plain wheel scrolls the page
PAN = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"  # a finger scrolls it too


def figure(layers: list[alt.Chart], rows: list[ChartRow], name: str, *, zoom: bool) -> alt.LayerChart:
    """The layers as one chart, whose data named "rows" are `rows`; with `zoom` its x-axis can be moved and scaled."""
    if zoom:
        scales = alt.selection_interval(name="zoom", bind="scales", encodings=["x"], zoom=ZOOM, translate=PAN)
        layers = [layers[0].add_params(scales), *layers[1:]]
    hidden = alt.param(name="hidden", value=[])
    chart = alt.layer(*layers).add_params(hidden).properties(width=WIDTH, height=HEIGHT, title=name)
    chart.datasets = {"rows": rows}  # last: each step above copies all that it has
    return chart


def hover(curves: alt.Chart, fields: Tips) -> alt.Chart:
    """The point of the curves nearest to the pointer, with its tooltip; the others are invisible.

    The tooltip is written out, since Vega-Lite (6.4) looks for the text fields of a nearest point in the wrong object.
    """
    lines = []
    for title, (field, _, form) in _split(fields):
        value = f"(datum.datum || datum)['{field}']"  # the cell around a point has the point's row in its own
        lines.append(f"'{title}': " + (f"format({value}, '{form}')" if form else value))
    near = alt.selection_point(name="near", on="pointerover", nearest=True, empty=False, clear="pointerout")
    dots = curves.mark_point(size=60, filled=True, clip=True, aria=False, tooltip={"expr": f"{{{', '.join(lines)}}}"})
    return dots.encode(opacity=alt.condition(near, alt.value(1), alt.value(0))).add_params(near).properties(name=HOVER)


def arm_chart(result: Result, rows: Sequence[ChartRow] | None = None) -> alt.Chart:
    """A chart of `rows`, by default those of the figure, of all arms shown; an arm has one colour in all charts."""
    domain = [label_of(arm) for arm in result["arms"]]
    base = alt.Chart(alt.NamedData("rows")) if rows is None else inline(rows)
    return base.transform_filter(SHOWN).encode(color=alt.Color("arm:N", title=None, scale=alt.Scale(domain=domain)))


def inline(rows: Sequence[ChartRow]) -> alt.Chart:
    """A chart of `rows`."""
    return alt.Chart(alt.InlineData(values=rows))


def x_axis(field: str, title: str, *, whole: bool = False, **scale: object) -> alt.X:
    """An x-axis of numbers, which ends with the data; with `whole`, ticks are whole numbers."""
    axis = alt.Axis(tickCount=TICKS, **({"tickMinStep": 1} if whole else {}))
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(**({"nice": False} | scale)), axis=axis)


def y_axis(
    field: str,
    title: str,
    *,
    percent: bool | None = False,
    ticks: int = 5,
    at: Sequence[float] = (),
    **more: object,
) -> alt.Y:
    """A y-axis of numbers, with `percent` of shares; `at` are its ticks, which Vega chooses by default."""
    chosen = {"values": list(at), "format": "~g"} if at else {}
    axis = alt.Axis(tickCount=ticks, **({"format": ".0%"} if percent else chosen))
    return alt.Y(f"{field}:Q", title=title, axis=axis, **more)


def cycled(names: Sequence[str], values: Sequence[object] = SHAPES) -> alt.Scale:
    """A scale from `names` to `values`, which repeat if there are more names."""
    return alt.Scale(domain=list(names), range=[values[i % len(values)] for i in range(len(names))])


def tips(fields: Tips) -> list[alt.Tooltip]:
    """The lines of a tooltip."""
    lines = [(title, field, {"format": form} if form else {}) for title, (field, _, form) in _split(fields)]
    return [alt.Tooltip(f"{field}:{'Q' if more else 'N'}", title=title, **more) for title, field, more in lines]


def _split(fields: Tips) -> list[tuple[str, tuple[str, str, str]]]:
    return [(title, line.partition(":")) for title, line in fields.items()]


def digits(value: float | int) -> float:
    """Round to four digits, which keeps the page small."""
    return float(f"{value:.4g}")
