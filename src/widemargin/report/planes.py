"""Charts of planes: decision regions, cells, boundaries, ellipses, samples and curves around them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from widemargin.report import alt
from widemargin.report.layers import PAN, ZOOM, ChartRow, cycled, digits, tips
from widemargin.report.picture_schema import Panel, check_picture
from widemargin.report.schema import Json

WIDTH = 440  # of a panel; its height follows its box
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


def _axes(panel: Panel, x: str = "x", y: str = "y") -> dict[str, alt.X | alt.Y]:
    left, right, bottom, top = panel["box"]
    names = panel.get("axes", ["", ""])
    axis = alt.Axis(tickCount=5, grid=False)
    return {
        "x": alt.X(f"{x}:Q", title=names[0] or None, scale=alt.Scale(domain=[left, right], nice=False), axis=axis),
        "y": alt.Y(f"{y}:Q", title=names[1] or None, scale=alt.Scale(domain=[bottom, top], nice=False), axis=axis),
    }


def _names(panel: Panel) -> list[str]:
    """The classes that occur, in the order of their colours."""
    seen = {part["label"] for part in panel.get("parts", [])} | {point["label"] for point in panel.get("points", [])}
    seen |= {int(run[4]) for run in panel.get("runs", [])}
    return [panel["classes"][label] for label in sorted(seen)]


def _ground(panel: Panel) -> list[alt.Chart]:
    """The regions: polygons, or the runs of a raster; the box alone where there are neither."""
    classes = panel["classes"]
    pale = alt.Scale(domain=_names(panel), range="ordinal")
    fill = alt.Fill("class:O", scale=pale, legend=None)
    if panel.get("parts"):
        rows = _steps([*part["corners"], part["corners"][0]] for part in panel["parts"])
        told = [
            {"line": i, "class": classes[part["label"]]} | ({"slope": digits(part["slope"])} if "slope" in part else {})
            for i, part in enumerate(panel["parts"])
        ]
        tip = tips([("class", "class", ""), ("slope", "slope", ".3~g")][: len(told[0]) - 1])
        base = (
            alt.Chart(alt.InlineData(values=rows))
            .transform_lookup(
                lookup="line",
                from_=alt.LookupData(alt.InlineData(values=told), "line", [key for key in told[0] if key != "line"]),
            )
            .encode(**_axes(panel), fill=fill, detail="line:N", order="step:Q", tooltip=tip)
        )
        if panel.get("outlines"):
            fine = 0.8 if len(told) < 500 else 0.3
            look = {"strokeWidth": fine, "strokeOpacity": 0.8}
            return [base.mark_line(filled=True, style="piece", clip=True, aria=False, **look)]
        seamless = base.encode(stroke=alt.Stroke("class:O", scale=pale, legend=None))
        return [seamless.mark_line(filled=True, strokeWidth=0.8, clip=True, aria=False)]
    runs = [
        {"x": digits(a), "x2": digits(b), "y": digits(c), "y2": digits(d), "class": classes[int(label)]}
        for a, b, c, d, label in panel.get("runs", [])
    ]
    return [
        alt.Chart(alt.InlineData(values=runs))
        .mark_rect(clip=True, aria=False)
        .encode(
            **_axes(panel),
            x2="x2:Q",
            y2="y2:Q",
            fill=fill,
            stroke=alt.Stroke("class:O", scale=pale, legend=None),
            tooltip=tips([("class", "class", "")]),
        )
    ]


def _lines(panel: Panel) -> list[alt.Chart]:
    layers = []
    if panel.get("ellipses"):
        drawn = alt.Chart(alt.InlineData(values=_steps(panel["ellipses"]))).encode(
            **_axes(panel), detail="line:N", order="step:Q"
        )
        layers.append(drawn.mark_line(style="ellipse", strokeWidth=1.5, clip=True, aria=False))
    if panel.get("boundary"):
        segments = [
            {"x": digits(a), "y": digits(b), "x2": digits(c), "y2": digits(d)} for a, b, c, d in panel["boundary"]
        ]
        ruled = alt.Chart(alt.InlineData(values=segments)).mark_rule(
            style="edge", strokeWidth=2.2, strokeCap="round", clip=True, aria=False
        )
        layers.append(ruled.encode(**_axes(panel), x2="x2:Q", y2="y2:Q"))
    if panel.get("curves"):
        layers.append(_curves(panel))
    return layers


def _steps(lines: Iterable[Sequence[Sequence[float]]]) -> list[ChartRow]:
    """A row per point: the index of its line, its place in it, and its coordinates."""
    return [
        {"line": i, "step": k, "x": digits(x), "y": digits(y)}
        for i, line in enumerate(lines)
        for k, (x, y) in enumerate(line)
    ]


def _curves(panel: Panel) -> alt.Chart:
    rows = _steps(curve["points"] for curve in panel["curves"])
    for row in rows:
        row["name"] = panel["curves"][row["line"]]["name"]
    names = list(dict.fromkeys(curve["name"] for curve in panel["curves"]))
    return (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(style="curve", strokeWidth=1.8, clip=True)
        .encode(
            **_axes(panel),
            detail="line:N",
            order="step:Q",
            strokeDash=alt.StrokeDash(
                "name:N", scale=cycled(names, _DASHES), legend=_legend(symbolType="stroke", symbolSize=700)
            ),
            tooltip=tips([("name", "curve", "")]),
        )
    )


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
    told = [("class", "class", "")]
    told += [("group", "sample", "")] if any(groups) else []
    told += [("note", "note", "")] if any(row["note"] for row in rows) else []
    shapes = cycled(names)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        **_axes(panel),
        color=alt.Color("class:N", scale=alt.Scale(domain=names), legend=_legend()),
        shape=alt.Shape("class:N", scale=shapes, legend=_legend()),
        tooltip=tips(told),
    )
    first = groups[0] if groups else ""
    layers = []
    if len(groups) > 1:
        quiet = {"scale": alt.Scale(domain=names), "legend": None}
        others = base.transform_filter(alt.datum.group != first).encode(color=alt.Color("class:N", **quiet))
        others = others.encode(shape=alt.Shape("class:N", scale=shapes, legend=None))
        layers.append(others.mark_point(filled=True, size=14, opacity=0.45, clip=True, aria=False))
    front = base.transform_filter(alt.datum.group == first) if len(groups) > 1 else base
    size = 110 if len(rows) < 10 else 46 if len(rows) < 120 or len(groups) > 1 else 24
    layers.append(
        front.mark_point(style="sample", filled=True, size=size, strokeWidth=0.8, opacity=1, clip=True, aria=False)
    )
    pictured = [{**row, "image": point["image"]} for row, point in zip(rows, points) if "image" in point]
    if pictured:
        images = alt.Chart(alt.InlineData(values=pictured)).encode(**_axes(panel), url="image:N", tooltip=tips(told))
        layers.append(images.mark_image(width=52, height=52, yOffset=-36, smooth=False, clip=True))
    return layers
