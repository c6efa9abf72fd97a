"""Schema of pictures of planes, as plain values."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypeAlias, TypedDict, cast

from widemargin.report.check import SchemaError, check_type
from widemargin.report.schema import PNG, Json, Length

Pair: TypeAlias = Annotated[list[float], Length(2)]
Four: TypeAlias = Annotated[list[float], Length(4)]


class Part(TypedDict):
    """A convex polygon of one class. `slope`: the largest singular value of the network's Jacobian there."""

    corners: list[Pair]
    label: int
    slope: NotRequired[float]


class Point(TypedDict):
    """A sample. `group` names its kind, the first kind is drawn larger; `image` is a PNG as a data URI."""

    x: float
    y: float
    label: int
    group: NotRequired[str]
    note: NotRequired[str]
    image: NotRequired[Annotated[str, PNG]]


class Curve(TypedDict):
    """A line through points; curves of one name share a colour and a dash."""

    name: str
    points: list[Pair]


class Panel(TypedDict):
    """A plane. `box` is (left, right, bottom, top); labels are indices into `classes`.

    Regions are either `parts`, polygons with outlines where `outlines` is true, or `runs`, rows of a raster as (left,
    right, bottom, top, label). `boundary` holds segments (x, y, x, y), `ellipses` closed lines.
    """

    title: str
    text: str
    box: Four
    classes: list[str]
    axes: NotRequired[list[str]]
    outlines: NotRequired[bool]
    parts: NotRequired[list[Part]]
    runs: NotRequired[list[Annotated[list[float], Length(5)]]]
    boundary: NotRequired[list[Four]]
    ellipses: NotRequired[list[list[Pair]]]
    points: NotRequired[list[Point]]
    curves: NotRequired[list[Curve]]


class Picture(TypedDict):
    """Panels with a title, and their settings, versions and hardware."""

    title: str
    subtitle: str
    panels: list[Panel]
    settings: NotRequired[dict[str, Json]]
    versions: NotRequired[dict[str, Json]]
    hardware: NotRequired[dict[str, Json]]


def check_picture(picture: Json) -> Picture:
    """Return `picture`; raise a `ValueError` that names the first entry that does not fit `Picture`."""
    check_type(picture, Picture, "picture")
    if not picture["panels"]:
        raise SchemaError("is empty, expected at least one panel", "picture.panels")
    for i, panel in enumerate(picture["panels"]):
        path = f"picture.panels[{i}]"
        left, right, bottom, top = panel["box"]
        if not (left < right and bottom < top):
            raise SchemaError(f"is {panel['box']}, expected [left, right, bottom, top]", f"{path}.box")
        labels = [(f"{path}.runs[{k}][4]", run[4]) for k, run in enumerate(panel.get("runs", []))]
        for name in ("parts", "points"):
            labels += [(f"{path}.{name}[{k}].label", entry["label"]) for k, entry in enumerate(panel.get(name, []))]
        classes = len(panel["classes"])
        for where, label in labels:
            if label not in range(classes):
                raise SchemaError(f"is {label!r}, expected an index of its {classes} classes", where)
    return cast(Picture, picture)
