"""What the charts are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widemargin.report.extras import need
from widemargin.report.names import label_of
from widemargin.report.schema import Result

if TYPE_CHECKING:
    import altair as alt

WIDTH, HEIGHT = 680, 300
SHOWN = "indexof(hidden, datum.arm) < 0"  # the page writes the arms that its reader switched off into `hidden`
TICKS = {"expr": "ceil(width / 80)"}  # fewer on a phone
HOVER = "hover"  # the name of the layer that only a pointer needs
_ZOOM = "wheel![event.ctrlKey || event.metaKey]"  # a plain wheel scrolls the page
_PAN = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"  # a finger scrolls it too


def figure(layers: list[Any], rows: list[dict[str, Any]], name: str, *, zoom: bool) -> alt.LayerChart:
    """The layers as one chart, whose data named "rows" are `rows`; with `zoom` its x-axis can be moved and scaled."""
    alt = need("altair")
    if zoom:
        scales = alt.selection_interval(name="zoom", bind="scales", encodings=["x"], zoom=_ZOOM, translate=_PAN)
        layers = [layers[0].add_params(scales), *layers[1:]]
    hidden = alt.param(name="hidden", value=[])
    chart = alt.layer(*layers).add_params(hidden).properties(width=WIDTH, height=HEIGHT, title=name)
    chart.datasets = {"rows": rows}  # last: each step above copies all that it has
    return chart


def hover(curves: alt.Chart) -> alt.Chart:
    """The point of the curves nearest to the pointer, with its tooltip; the others are there but unseen and untold."""
    alt = need("altair")
    near = alt.selection_point(name="near", on="pointerover", nearest=True, empty=False, clear="pointerout")
    dots = curves.mark_point(size=60, filled=True, clip=True, aria=False)
    return dots.encode(opacity=alt.condition(near, alt.value(1), alt.value(0))).add_params(near).properties(name=HOVER)


def color(result: Result) -> alt.Color:
    """One colour per arm, the same in every chart."""
    alt = need("altair")
    return alt.Color("arm:N", title=None, scale=alt.Scale(domain=[label_of(arm) for arm in result["arms"]]))


def tip(field: str, title: str, format: str | None = None) -> alt.Tooltip:
    """A line of a tooltip."""
    alt = need("altair")
    return alt.Tooltip(field, title=title, format=format) if format else alt.Tooltip(field, title=title)


def digits(value: float | int) -> float:
    """Four digits are more than a chart shows, and keep the page small."""
    return float(f"{value:.4g}")
