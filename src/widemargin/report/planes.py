"""Charts of planes: decision regions, cells, boundaries, ellipses, samples and curves around them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from widemargin.report import alt
from widemargin.report.check import check_picture
from widemargin.report.layers import PAN, ZOOM, ChartRow, Tips, cycled, digits, inline, tips
from widemargin.report.schema import Json, Panel

WIDTH = 440  # of a panel; its height follows its box
LINE: dict[str, Json] = {"detail": "line:N", "order": "step:Q"}  # rows of `_steps` as lines
_DASHES = ([1, 0], [7, 4], [2, 3], [9, 3, 2, 3])


def chart(panel: Panel, *, width: int = WIDTH, zoom: bool = True) -> alt.LayerChart:
    """One panel; with `zoom` it can be moved with the mouse and scaled with its wheel and Ctrl."""
    left, right, bottom, top = panel["box"]
    layers = [*_ground(panel), *_lines(panel), *_samples(panel)]
    if zoom:
        scales = alt.selection_interval(name="zoom", bind="scales", zoom=ZOOM, translate=PAN)
        layers[0] = layers[0].add_params(scales)
    made = alt.layer(*layers).add_params(alt.param(name="hidden", value=[]))  # the page's script sets it in every chart
    return made.resolve_scale(color="independent", shape="independent", strokeDash="independent").properties(
        width=width, height=round(width * (top - bottom) / (right - left))
    )


def figure(picture: Mapping[str, Json], *, columns: int = 2) -> alt.TopLevelMixin:
    """All panels of `picture` with their titles and captions, to be saved as one file (`figures.save`)."""
    checked = check_picture(picture)
    alone = len(checked["panels"]) == 1
    width = 560 if alone else WIDTH
    captions = [textwrap.wrap(panel["text"], round(width / 6.2)) for panel in checked["panels"]]
    most = max(map(len, captions))  # captions of one length, so that the titles of a row stand on one line
    panels = [
        chart(panel, width=width, zoom=False).properties(
            title=alt.Title(text=panel["title"], subtitle=[*caption, *[" "] * (most - len(caption))])
        )
        for panel, caption in zip(checked["panels"], captions)
    ]
    if alone:
        return panels[0]
    title = alt.Title(text=checked["title"], subtitle=checked["subtitle"], fontSize=17, offset=22)
    whole = alt.concat(*panels, columns=columns, spacing={"row": 44, "column": 40}).properties(title=title)
    return whole.resolve_scale(color="independent", shape="independent", strokeDash="independent", fill="independent")


def _legend(**more: object) -> alt.Legend:
    return alt.Legend(title=None, orient="top", offset=8, columns=5, **more)


def _chart(panel: Panel, rows: Sequence[ChartRow], fields: Tips | None = None, **more: object) -> alt.Chart:
    """A chart of `rows`, which have an x and a y, in the box of `panel`, with the tooltip `fields`."""
    left, right, bottom, top = panel["box"]
    names = panel.get("axes", ["", ""])
    axis = alt.Axis(tickCount=5, grid=False)
    return inline(rows).encode(
        x=alt.X("x:Q", title=names[0] or None, scale=alt.Scale(domain=[left, right], nice=False), axis=axis),
        y=alt.Y("y:Q", title=names[1] or None, scale=alt.Scale(domain=[bottom, top], nice=False), axis=axis),
        **({} if fields is None else {"tooltip": tips(fields)}),
        **more,
    )


def _names(panel: Panel) -> list[str]:
    """The classes that occur, in the order of their colours."""
    seen = {part["label"] for part in panel.get("parts", [])} | {point["label"] for point in panel.get("points", [])}
    seen |= {int(run[4]) for run in panel.get("runs", [])}
    return [panel["classes"][label] for label in sorted(seen)]


def _ground(panel: Panel) -> list[alt.Chart]:
    """The regions: polygons, or the runs of a raster; the box alone where there are neither."""
    classes = panel["classes"]
    pale = {"scale": alt.Scale(domain=_names(panel), range="ordinal"), "legend": None}
    fill, stroke = alt.Fill("class:O", **pale), alt.Stroke("class:O", **pale)
    if not panel.get("parts"):
        runs = [
            {"x": digits(a), "x2": digits(b), "y": digits(c), "y2": digits(d), "class": classes[int(label)]}
            for a, b, c, d, label in panel.get("runs", [])
        ]
        base = _chart(panel, runs, {"class": "class"}, x2="x2:Q", y2="y2:Q", fill=fill, stroke=stroke)
        return [base.mark_rect(clip=True, aria=False)]
    rows = _steps([*part["corners"], part["corners"][0]] for part in panel["parts"])
    values = [
        {"line": i, "class": classes[part["label"]]} | ({"slope": digits(part["slope"])} if "slope" in part else {})
        for i, part in enumerate(panel["parts"])
    ]
    fields = {key: f"{key}:.3~g" if key == "slope" else key for key in values[0] if key != "line"}
    found = alt.LookupData(alt.InlineData(values=values), "line", list(fields))
    base = _chart(panel, rows, fields, fill=fill, **LINE).transform_lookup(lookup="line", from_=found)
    if panel.get("outlines"):
        look = {"style": "piece", "strokeWidth": 0.8 if len(values) < 500 else 0.3, "strokeOpacity": 0.8}
        return [base.mark_line(filled=True, clip=True, aria=False, **look)]
    return [base.encode(stroke=stroke).mark_line(filled=True, strokeWidth=0.8, clip=True, aria=False)]


def _lines(panel: Panel) -> list[alt.Chart]:
    layers = []
    if panel.get("ellipses"):
        drawn = _chart(panel, _steps(panel["ellipses"]), **LINE)
        layers.append(drawn.mark_line(style="ellipse", strokeWidth=1.5, clip=True, aria=False))
    if panel.get("boundary"):
        segments = [dict(zip(("x", "y", "x2", "y2"), map(digits, ends), strict=True)) for ends in panel["boundary"]]
        ruled = _chart(panel, segments, x2="x2:Q", y2="y2:Q")
        layers.append(ruled.mark_rule(style="edge", strokeWidth=2.2, strokeCap="round", clip=True, aria=False))
    if panel.get("curves"):
        rows = _steps(curve["points"] for curve in panel["curves"])
        for row in rows:
            row["name"] = panel["curves"][row["line"]]["name"]
        names = list(dict.fromkeys(curve["name"] for curve in panel["curves"]))
        legend = _legend(symbolType="stroke", symbolSize=700)
        dash = alt.StrokeDash("name:N", scale=cycled(names, _DASHES), legend=legend)
        curves = _chart(panel, rows, {"curve": "name"}, strokeDash=dash, **LINE)
        layers.append(curves.mark_line(style="curve", strokeWidth=1.8, clip=True))
    return layers


def _steps(lines: Iterable[Sequence[Sequence[float]]]) -> list[ChartRow]:
    """A row per point: the index of its line, its place in it, and its coordinates."""
    return [
        {"line": i, "step": k, "x": digits(x), "y": digits(y)}
        for i, line in enumerate(lines)
        for k, (x, y) in enumerate(line)
    ]


def _samples(panel: Panel) -> list[alt.Chart]:
    """Points by class, in colour and shape; with the legend of the regions, even without points."""
    names = _names(panel)
    points = panel.get("points", [])
    groups = list(dict.fromkeys(point.get("group", "") for point in points))
    rows = [
        {
            "x": digits(point["x"]),
            "y": digits(point["y"]),
            "class": panel["classes"][point["label"]],
            "group": point.get("group", ""),
            "note": point.get("note", ""),
        }
        for point in points
    ]
    fields = {"class": "class"} | ({"sample": "group"} if any(groups) else {})
    fields |= {"note": "note"} if any(row["note"] for row in rows) else {}

    def marked(legend: alt.Legend | None) -> alt.Chart:
        color = alt.Color("class:N", scale=alt.Scale(domain=names), legend=legend)
        return _chart(panel, rows, fields, color=color, shape=alt.Shape("class:N", scale=cycled(names), legend=legend))

    base = marked(_legend())
    first = groups[0] if groups else ""
    layers = []
    if len(groups) > 1:
        others = marked(None).transform_filter(alt.datum.group != first)
        layers.append(others.mark_point(filled=True, size=14, opacity=0.45, clip=True, aria=False))
    front = base.transform_filter(alt.datum.group == first) if len(groups) > 1 else base
    size = 110 if len(rows) < 10 else 46 if len(rows) < 120 or len(groups) > 1 else 24
    layers.append(
        front.mark_point(style="sample", filled=True, size=size, strokeWidth=0.8, opacity=1, clip=True, aria=False)
    )
    pictured = [{**row, "image": point["image"]} for row, point in zip(rows, points) if "image" in point]
    if pictured:
        images = _chart(panel, pictured, fields, url="image:N")
        layers.append(images.mark_image(width=52, height=52, yOffset=-36, smooth=False, clip=True))
    return layers
