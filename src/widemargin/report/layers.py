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

Tip: TypeAlias = tuple[str, str, str]
"""A line of a tooltip: a field, its name, and the format of its numbers; empty for text."""

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


def hover(curves: alt.Chart, told: list[Tip]) -> alt.Chart:
    """The point of the curves nearest to the pointer, with its tooltip; the others are invisible.

    The tooltip is written out, since Vega-Lite (6.4) looks for the text fields of a nearest point in the wrong object.
    """
    point = "(datum.datum || datum)"  # the cell around a point has the point's row in its own
    values = {
        title: f"format({point}['{field}'], '{form}')" if form else f"{point}['{field}']" for field, title, form in told
    }
    lines = ", ".join(f"'{title}': {value}" for title, value in values.items())
    near = alt.selection_point(name="near", on="pointerover", nearest=True, empty=False, clear="pointerout")
    dots = curves.mark_point(size=60, filled=True, clip=True, aria=False, tooltip={"expr": f"{{{lines}}}"})
    return dots.encode(opacity=alt.condition(near, alt.value(1), alt.value(0))).add_params(near).properties(name=HOVER)


def arm_chart(result: Result, data: alt.Data | None = None) -> alt.Chart:
    """A chart of the rows of all arms that are shown, or of `data`; each arm has the same colour in every chart."""
    domain = [label_of(arm) for arm in result["arms"]]
    base = alt.Chart(alt.NamedData("rows") if data is None else data).transform_filter(SHOWN)
    return base.encode(color=alt.Color("arm:N", title=None, scale=alt.Scale(domain=domain)))


def cycled(names: Sequence[str], values: Sequence[object] = SHAPES) -> alt.Scale:
    """A scale from `names` to `values`, which repeat if there are more names."""
    return alt.Scale(domain=list(names), range=[values[i % len(values)] for i in range(len(names))])


def tips(told: list[Tip]) -> list[alt.Tooltip]:
    """The lines of a tooltip."""
    return [
        alt.Tooltip(field=field, type="quantitative", title=title, format=form)
        if form
        else alt.Tooltip(field=field, type="nominal", title=title)
        for field, title, form in told
    ]


def digits(value: float | int) -> float:
    """Round to four digits, which keeps the page small."""
    return float(f"{value:.4g}")
