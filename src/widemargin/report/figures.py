"""Charts of a result, which can also be saved as SVG or PNG without a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from widemargin._io.files import write_whole
from widemargin._io.optional import import_optional
from widemargin.report import alt, layers
from widemargin.report.headline import accuracy_at
from widemargin.report.layers import ChartRow, arm_chart, cycled, digits, figure, hover, inline, tips, x_axis, y_axis
from widemargin.report.names import drawable, label_of, place_name, sentence, with_norm
from widemargin.report.schema import ArmResult, Json, Result
from widemargin.report.statistics import density, has_seeds, places, spread, statistics
from widemargin.report.theme import Mode, config

Quantity = Literal["distance", "accuracy", "loss"]

DISTANCE_AT = "distance at "  # and a place: the name of a mean distance in the rows of a history


def margins(result: Result, place: str) -> alt.LayerChart:
    """The density of the distance to the decision boundary at `place`, a curve per arm, with a line at each mean."""
    if place not in places(result["arms"]):
        raise ValueError(f"place is {place!r}, expected one of {', '.join(map(repr, places(result['arms'])))}")
    rows: list[ChartRow] = []
    means: list[ChartRow] = []
    for arm in result["arms"]:
        if place not in arm.get("margins", {}):
            continue
        curve = density(arm["margins"][place])
        rows += [{"arm": label_of(arm), "margin": digits(x), "density": digits(y)} for x, y in curve]
        mean = statistics(arm["margins"][place]).mean
        if curve:
            height = min(curve, key=lambda point: abs(point[0] - mean))[1]
            means.append({"arm": label_of(arm), "mean": digits(mean), "height": digits(height)})
    low, high = min((r["margin"] for r in rows), default=0.0), max((r["margin"] for r in rows), default=1.0)
    x = x_axis("margin", with_norm("distance to the boundary", result.get("norm", "")), zero=False)
    y = y_axis("density", "density", ticks=4, stack=None)
    curves = arm_chart(result).encode(x=x, y=y)
    marks = []
    if low < 0 < high:
        side = inline([{"from": low, "to": 0}]).encode(x="from:Q", x2="to:Q")
        marks.append(side.mark_rect(style="wrong", clip=True))
    fields = tips({"network": "arm", "mean": "mean:.3~g"})
    lines = arm_chart(result, means).encode(x="mean:Q", y="height:Q", y2=alt.datum(0), tooltip=fields)
    marks += [
        curves.mark_area(opacity=0.07, interpolate="monotone", clip=True),
        curves.mark_line(interpolate="monotone", clip=True),
        lines.mark_rule(strokeDash=[3, 3], strokeWidth=1.5, clip=True),
        hover(curves, {"network": "arm", "distance": "margin:.3~g", "density": "density:.3~g"}),
    ]
    if low < 0 < high:
        zero = inline([{"zero": 0, "text": "boundary"}]).encode(x="zero:Q")
        marks.append(zero.mark_rule(style="boundary", clip=True))
        left = -low > 0.15 * (high - low)  # on the side with fewer curves
        text = zero.mark_text(style="aside", align="right" if left else "left", dx=-5 if left else 5, dy=9, clip=True)
        marks.append(text.encode(y=alt.value(0), text="text:N"))
    return figure(marks, rows, f"Margins {place_name(place)}", zoom=True)


def under_attack(result: Result) -> alt.LayerChart:
    """Accuracy over ε, the size of the attack, a line per arm."""
    attack = result.get("attack", {})
    title = with_norm("ε", attack.get("norm", ""))
    return _shares(result, "curve", "epsilon", title, "ε", f"Accuracy under {attack.get('name', 'attack')}")


def over_data(result: Result) -> alt.LayerChart:
    """Accuracy against the number of training samples, on a logarithmic axis, a line per arm."""
    return _shares(result, "sizes", "samples", "training samples", "samples", "Accuracy against data", log=True)


def over_training(result: Result, quantity: Quantity = "distance", place: str = "input") -> alt.LayerChart:
    """The mean distance at `place`, the accuracy or the loss over the epochs: training samples dashed, others solid."""
    rows = training_rows(result, quantity, place)
    mean = with_norm("mean distance to the boundary", result.get("norm", ""))
    title = mean if quantity == "distance" else quantity
    percent = quantity == "accuracy"
    x = x_axis("epoch", "epoch", whole=True, nice=True)
    both = len({row["samples"] for row in rows}) > 1
    dash = alt.StrokeDash(
        "samples:N", title=None, scale=alt.Scale(domain=[watched(result), "training"], range=[[1, 0], [5, 4]])
    )
    value = f"value:{'.1%' if percent else '.3~g'}"
    fields = {"network": "arm", "samples": "samples", "epoch": "epoch:~r", quantity: value}
    lines = arm_chart(result).encode(x=x, y=y_axis("value", title, percent=percent))
    dashed = lines.encode(strokeDash=dash) if both else lines
    name = f"Distance over training, {place_name(place)}" if quantity == "distance" else f"{quantity} over training"
    return figure([dashed.mark_line(clip=True), hover(lines, fields)], rows, sentence(name), zoom=True)


def watched(result: Result) -> str:
    """What the samples are called on which a training was measured besides its own."""
    return result.get("validation", "validation")


def training_rows(result: Result, quantity: Quantity, place: str) -> list[ChartRow]:
    """The data of `over_training`: a row per arm, kind of samples and epoch."""
    name = f"{DISTANCE_AT}{place}" if quantity == "distance" else quantity
    return [
        {"arm": label_of(arm), "samples": samples, "epoch": row["epoch"], "value": digits(value)}
        for arm in result["arms"]
        for split, samples in (("validation", watched(result)), ("train", "training"))
        for row in arm.get("history", [])
        if row["split"] == split and isinstance(value := row.get(name), (int, float))
    ]


def save(
    chart: alt.TopLevelMixin, path: str | os.PathLike[str], *, mode: Mode = "light", scale: float | int = 2.0
) -> Path:
    """Write `chart` to `path`, which ends in .svg or .png, without a browser; `scale` is the resolution of a PNG."""
    path = Path(path)
    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"path is {str(path)!r}, expected a name that ends in .svg or .png")
    content = svg(chart, mode) if path.suffix == ".svg" else _converted("png", chart, mode, scale=scale)
    return write_whole(path, lambda part: part.write_bytes(content))


def svg(chart: alt.TopLevelMixin, mode: Mode) -> bytes:
    """The SVG of `chart`, in UTF-8."""
    return _converted("svg", chart, mode).encode()


def _converted(form: Literal["svg", "png"], chart: alt.TopLevelMixin, mode: Mode, **more: float | int) -> Json:
    convert = getattr(import_optional("vl_convert"), f"vegalite_to_{form}")
    settings = {"vl_version": vega_lite_version(), "config": config(mode, legend=True)}
    return convert(drawable(_static(chart.to_dict())), **settings, **more)


def vega_lite_version() -> str:
    """The version of Vega-Lite that Altair writes for, as vl-convert names it."""
    version: str = alt.SCHEMA_VERSION
    return ".".join(version.removeprefix("v").split(".")[:2])


def _static(spec: dict[str, Json]) -> dict[str, Json]:
    """The specification without interactive parts and without Altair's own theme."""
    kept = {key: value for key, value in spec.items() if key != "config"}
    if "layer" in spec:
        kept["layer"] = [layer for layer in spec["layer"] if layer.get("name") != layers.HOVER]
    if "params" in spec:
        kept["params"] = [param for param in spec["params"] if "select" not in param]
    return kept


def _shares(
    result: Result, entry: Literal["curve", "sizes"], x: str, title: str, label: str, name: str, *, log: bool = False
) -> alt.LayerChart:
    """The accuracy over `x` in the rows that the arms have under `entry`."""
    points: list[tuple[ArmResult, Json]] = [(arm, one) for arm in result["arms"] for one in arm.get(entry, [])]
    rows = [{"arm": label_of(arm), x: point[x], "accuracy": point["accuracy"]} for arm, point in points]
    is_banded = entry == "curve" and has_seeds(result["arms"])
    if is_banded:
        rows = [row | _band(arm, point["epsilon"]) for row, (arm, point) in zip(rows, points, strict=True)]
    shares = alt.Scale(zero=False, nice=True) if log else alt.Scale(domain=[0, 1])
    lines = arm_chart(result).encode(
        x=x_axis(x, title, type="log" if log else "linear"),
        y=y_axis("accuracy", "accuracy", percent=True, scale=shares),
        tooltip=tips({"network": "arm", label: f"{x}:~r", "accuracy": "accuracy:.1%"}),
    )
    shape = alt.Shape("arm:N", title=None, scale=cycled([label_of(arm) for arm in result["arms"]]))
    dots = lines.mark_point(filled=True, size=55, opacity=1, clip=False).encode(shape=shape)
    bands = [lines.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q")] if is_banded else []
    return figure([*bands, lines.mark_line(), dots], rows, name, zoom=False)


def _band(arm: ArmResult, epsilon: float) -> ChartRow:
    """The accuracy at ε, less and plus its standard deviation over the seeds."""
    found = spread(accuracy_at(one, epsilon) for one in arm["seeds"])
    return {"low": digits(max(0.0, found.mean - found.std)), "high": digits(min(1.0, found.mean + found.std))}
