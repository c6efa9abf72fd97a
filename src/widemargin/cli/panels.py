"""Tensors as the plain values of a picture's panels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from widemargin.report.picture_schema import Curve, Point
    from widemargin.report.schema import Json


def points(
    x: Tensor,
    labels: Tensor,
    *,
    group: str = "",
    margins: Tensor | None = None,
    box: tuple[float, float, float, float] | None = None,
) -> list[Point]:
    """Samples of the plane, with their margins as notes; as far as the edge of `box`, they are lower bounds."""
    more: dict[str, Json] = {"group": group} if group else {}
    notes: list[dict[str, str]] = [{}] * len(x)
    if margins is not None:
        edges = [math.inf] * len(x) if box is None else _edges(x, box)
        notes = [
            {"note": f"distance {value:.3g}" if abs(value) < 0.999999 * edge else f"distance at least {abs(value):.3g}"}
            for value, edge in zip(margins.tolist(), edges)
        ]
    return [
        {"x": p1, "y": p2, "label": int(label > 0) if isinstance(label, float) else label, **more, **note}  # type: ignore[typeddict-item]
        for (p1, p2), label, note in zip(x.tolist(), labels.tolist(), notes)
    ]


def circle(centre: Tensor, radius: float, name: str, *, corners: int = 96) -> Curve:
    """The circle of `radius` around `centre`."""
    turn = [2 * math.pi * k / corners for k in range(corners + 1)]
    x, y = centre.tolist()
    return {"name": name, "points": [[x + radius * math.cos(t), y + radius * math.sin(t)] for t in turn]}


def around(centre: Tensor, angles: Tensor, radii: Tensor, name: str) -> Curve:
    """The closed line at distance `radii` from `centre` in the directions `angles`."""
    x, y = centre.tolist()
    found = [
        [x + r * math.cos(t), y + r * math.sin(t)]
        for t, r in zip(angles.tolist(), radii.tolist(), strict=True)
        if math.isfinite(r)
    ]
    return {"name": name, "points": [*found, found[0]] if found else []}


def box_around(x: Tensor, *, share: float = 0.12, shape: float = 1.7 / 2.2) -> tuple[float, float, float, float]:
    """A box around the points `[batch, 2]` with some space, `shape` times as high as it is wide."""
    (left, bottom), (right, top) = x.amin(dim=0).tolist(), x.amax(dim=0).tolist()
    wide = max(right - left, (top - bottom) / shape, 1e-9) * (1 + 2 * share)
    middle, level = (left + right) / 2, (bottom + top) / 2
    return middle - wide / 2, middle + wide / 2, level - shape * wide / 2, level + shape * wide / 2


def _edges(x: Tensor, box: tuple[float, float, float, float]) -> list[float]:
    """The distance of points from the nearest edge of `box`."""
    left, right, bottom, top = box
    return [min(p1 - left, right - p1, p2 - bottom, top - p2) for p1, p2 in x.tolist()]
