"""Panels of pictures: the plane of three samples or of two-dimensional data, and its points and curves as values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from widemargin import geometry
from widemargin.margins import page

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.data import Data, Samples
    from widemargin.report.schema import Curve, Json, Panel, Point

Three: TypeAlias = tuple[int, int, int]
Box: TypeAlias = tuple[float, float, float, float]

_SHOWN = 2000  # samples of a whole plane, at most


def three(part: Samples, wanted: Three | None) -> Three:
    """The indices of three samples: those wanted, or the first samples of three classes."""
    if wanted is None:
        labels = part.y.tolist()
        firsts = [labels.index(label) for label in dict.fromkeys(labels)][:3]
        rest = [index for index in range(len(labels)) if index not in firsts]
        return cast("Three", tuple((firsts + rest)[:3]))
    for index in wanted:
        if index >= len(part):
            raise ValueError(f"sample {index} does not exist, expected indices below {len(part)}")
    return wanted


def panel(
    model: nn.Module, part: Samples, data: Data[Any], chosen: Three | None, padding: float, max_cells: int, pixels: int
) -> Panel:
    """The plane with its cells or as a raster, the samples in it and their exact distances to the boundary."""
    if chosen is None:
        origin, frame = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
        picked = torch.arange(min(len(part), _SHOWN))
        places = part.x[picked].double()
    else:
        picked = torch.tensor(chosen)
        origin, frame, places = _spanned(part.x[picked].double())
    box = box_around(places, share=padding if chosen is not None else padding / 4, shape=1.0 if chosen else 0.8)
    shape = part.x.shape[1:]
    u, v = (side.reshape(shape) for side in frame)
    piece = geometry.slice2d(model, origin.reshape(shape), u, v, box, max_cells=max_cells, pixels=pixels)
    labels, margins = part.y[picked], None
    if isinstance(piece, geometry.Slice):
        margins = geometry.exact_margin(piece, places.to(piece.maps.device), labels, signed=True, outside="edge")
    shown = points(places, labels, margins=margins, box=box)
    if chosen is not None and data.bounds is not None:
        for point, x in zip(shown, part.x[picked], strict=True):
            point.update(cast("Point", page.image(x, data.bounds)))
    title = "The whole plane" if chosen is None else f"Through samples {', '.join(map(str, chosen))}"
    words = {"title": title, "text": _caption(piece, chosen is not None), "classes": list(data.classes)}
    return cast("Panel", {**words, "outlines": True, "points": shown, **geometry.plain(piece)})


def points(
    x: Tensor, labels: Tensor, *, group: str = "", margins: Tensor | None = None, box: Box | None = None
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
    angles = torch.arange(corners, dtype=torch.float64) * (2 * math.pi / corners)
    return around(centre, angles, torch.full_like(angles, radius), name)


def around(centre: Tensor, angles: Tensor, radii: Tensor, name: str) -> Curve:
    """The closed line at distance `radii` from `centre` in the directions `angles`."""
    x, y = centre.tolist()
    found = [
        [x + r * math.cos(t), y + r * math.sin(t)]
        for t, r in zip(angles.tolist(), radii.tolist(), strict=True)
        if math.isfinite(r)
    ]
    return {"name": name, "points": [*found, found[0]] if found else []}


def box_around(x: Tensor, *, share: float = 0.12, shape: float = 1.7 / 2.2) -> Box:
    """A box around the points `[batch, 2]` with some space, `shape` times as high as it is wide."""
    (left, bottom), (right, top) = x.amin(dim=0).tolist(), x.amax(dim=0).tolist()
    wide = max(right - left, (top - bottom) / shape, 1e-9) * (1 + 2 * share)
    middle, level = (left + right) / 2, (bottom + top) / 2
    return middle - wide / 2, middle + wide / 2, level - shape * wide / 2, level + shape * wide / 2


def _spanned(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first of three samples, two orthonormal directions towards the others, and the samples in that frame."""
    rows = x.flatten(1)
    sides = (rows[1:] - rows[0]).T
    frame, places = torch.linalg.qr(sides)
    if not float(places.diagonal().abs().min()) > 1e-9 * float(places.abs().max()):
        raise ValueError("the three samples lie on one line, expected three that span a plane")
    signs = places.diagonal().sign()
    frame, places = frame * signs, places * signs[:, None]
    return rows[0], frame.T, torch.cat((places.new_zeros(1, 2), places.T))


def _caption(piece: geometry.Slice | geometry.Raster, slice_: bool) -> str:
    units = "in units of the inputs' l_2 distance"
    colors = "Colours are the predicted classes. Markers have the colours of the labels."
    if isinstance(piece, geometry.Raster):
        rows, columns = piece.points.shape[:2]
        return (
            f"Drawn as a raster of {columns} × {rows} pixels, not exactly: the plane has more than "
            f"{piece.max_cells:,} cells. {colors} Axes are {units}."
        )
    near = " within this plane" if slice_ else ""
    return (
        f"{len(piece):,} cells, exact: on each the network is affine. {colors} The "
        f"thick line is the decision boundary, axes are {units}. Point at a sample to see its exact distance to the "
        f"boundary{near}."
    )


def _edges(x: Tensor, box: Box) -> list[float]:
    """The distance of points from the nearest edge of `box`."""
    left, right, bottom, top = box
    return [min(p1 - left, right - p1, p2 - bottom, top - p2) for p1, p2 in x.tolist()]
