"""What a picture of planes is made of, as plain values, and the sentence for what is not one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NotRequired, TypedDict, cast, get_origin, get_type_hints

from widemargin.report.check import DATA_URI


class Part(TypedDict):
    """A convex polygon on which one class wins. `slope`: of the network there, the largest singular value of J."""

    corners: list[list[float]]
    label: int
    slope: NotRequired[float]


class Point(TypedDict):
    """A sample. `group` tells kinds of samples apart, the first one is drawn larger; `image` is a PNG as a data URI."""

    x: float
    y: float
    label: int
    group: NotRequired[str]
    note: NotRequired[str]
    image: NotRequired[str]


class Curve(TypedDict):
    """A line through points; curves of one name share a colour and a dash."""

    name: str
    points: list[list[float]]


class Panel(TypedDict):
    """A plane. `box` is (left, right, bottom, top); labels are indices into `classes`.

    What is drawn: `parts`, exactly, with the outlines of cells where `outlines` is true, or `runs`, the rows of a
    raster as (left, right, bottom, top, label); `boundary`, segments (x, y, x, y); `ellipses`, each a closed line.
    """

    title: str
    text: str
    box: list[float]
    classes: list[str]
    axes: NotRequired[list[str]]
    outlines: NotRequired[bool]
    parts: NotRequired[list[Part]]
    runs: NotRequired[list[list[float]]]
    boundary: NotRequired[list[list[float]]]
    ellipses: NotRequired[list[list[list[float]]]]
    points: NotRequired[list[Point]]
    curves: NotRequired[list[Curve]]


class Picture(TypedDict):
    """Panels with a title, and where they come from."""

    title: str
    subtitle: str
    panels: list[Panel]
    settings: NotRequired[dict[str, Any]]
    versions: NotRequired[dict[str, Any]]
    hardware: NotRequired[dict[str, Any]]


def check_picture(picture: Any) -> Picture:
    """`picture`, if it is one: a `ValueError` names the first entry that is missing, unknown or not as expected."""
    _keys(picture, "picture", Picture)
    if not picture["panels"]:
        raise ValueError("picture.panels is empty, expected at least one panel")
    for i, panel in enumerate(picture["panels"]):
        _panel(panel, f"picture.panels[{i}]")
    return cast(Picture, picture)


def _panel(panel: Any, path: str) -> None:
    _keys(panel, path, Panel)
    _numbers(panel["box"], f"{path}.box", 4)
    left, right, bottom, top = panel["box"]
    if not (left < right and bottom < top):
        raise ValueError(f"{path}.box is {panel['box']}, expected [left, right, bottom, top]")
    classes = len(panel["classes"])
    for name, count in (("runs", 5), ("boundary", 4)):
        for i, row in enumerate(panel.get(name, [])):
            _numbers(row, f"{path}.{name}[{i}]", count)
    for name, kind in (("parts", Part), ("points", Point), ("curves", Curve)):
        for i, entry in enumerate(panel.get(name, [])):
            _keys(entry, f"{path}.{name}[{i}]", kind)
            label = entry.get("label", 0)
            if type(label) is not int or not 0 <= label < classes:
                raise ValueError(f"{path}.{name}[{i}].label is {label!r}, expected an index of its {classes} classes")
            for place in entry.get("corners", entry.get("points", [])):
                _numbers(place, f"{path}.{name}[{i}]", 2)
    for i, point in enumerate(panel.get("points", [])):
        _numbers([point["x"], point["y"]], f"{path}.points[{i}]", 2)
        if "image" in point and not DATA_URI.fullmatch(point["image"]):
            raise ValueError(f"{path}.points[{i}].image is no PNG, expected 'data:image/png;base64,…'")
    for i, run in enumerate(panel.get("runs", [])):
        if run[4] not in range(classes):
            raise ValueError(f"{path}.runs[{i}] has the label {run[4]!r}, expected an index of its {classes} classes")
    for i, ellipse in enumerate(panel.get("ellipses", [])):
        for place in ellipse:
            _numbers(place, f"{path}.ellipses[{i}]", 2)


def _keys(value: Any, path: str, kind: Any) -> None:
    needed, known = _known(kind)
    if not isinstance(value, Mapping):
        raise ValueError(f"{path} is a {type(value).__name__}, expected an object with {', '.join(needed)}")
    for key in needed:
        if key not in value:
            raise ValueError(f"{path} has no {key!r}, expected {', '.join(needed)}")
    for key in value:
        if key not in known:
            raise ValueError(f"{path} has {key!r}, which the report does not know, expected one of {', '.join(known)}")


@cache
def _known(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    hints = get_type_hints(kind, include_extras=True)  # Python 3.11 does not know by itself which are required
    return tuple(key for key, hint in hints.items() if get_origin(hint) is not NotRequired), tuple(hints)


def _numbers(values: Any, path: str, count: int) -> None:
    good = isinstance(values, list) and len(values) == count
    if not good or not all(type(v) in (int, float) and math.isfinite(v) for v in values):
        raise ValueError(f"{path} is {values!r}, expected {count} finite numbers")
