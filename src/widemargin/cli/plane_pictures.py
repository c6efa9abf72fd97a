"""Panels of `widemargin picture`: the plane through three samples, or the plane of two-dimensional data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from widemargin import geometry
from widemargin.cli import panels
from widemargin.report import png

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.data import Data, Samples
    from widemargin.report.picture_schema import Panel

_SHOWN = 2000  # samples of a whole plane, at most


def three(part: Samples, wanted: tuple[int, int, int] | None) -> tuple[int, int, int]:
    """The indices of three samples: those wanted, or the first samples of three classes."""
    if wanted is None:
        labels = part.y.tolist()
        firsts = [labels.index(label) for label in dict.fromkeys(labels)][:3]
        rest = [index for index in range(len(labels)) if index not in firsts]
        one, two, other = (firsts + rest)[:3]
        return one, two, other
    for index in wanted:
        if index >= len(part):
            raise ValueError(f"sample {index} does not exist, expected indices below {len(part)}")
    return wanted


def panel(
    network: nn.Module,
    part: Samples,
    data: Data[Any],
    chosen: tuple[int, int, int] | None,
    *,
    room: float,
    max_cells: int,
    pixels: int,
) -> Panel:
    """The plane with its cells or as a raster, the samples in it and their exact distances to the boundary."""
    if chosen is None:
        origin, frame = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
        picked = torch.arange(min(len(part), _SHOWN))
        places = part.x[picked].double()
    else:
        picked = torch.tensor(chosen)
        origin, frame, places = _spanned(part.x[picked].double())
    box = panels.box_around(places, share=room if chosen is not None else room / 4, shape=1.0 if chosen else 0.8)
    shape = part.x.shape[1:]
    u, v = (side.reshape(shape) for side in frame)
    piece = geometry.slice2d(network, origin.reshape(shape), u, v, box, max_cells=max_cells, pixels=pixels)
    labels = part.y[picked]
    values: dict[str, Any] = {
        "title": "The whole plane" if chosen is None else f"Through samples {', '.join(map(str, chosen))}",
        "text": _caption(piece, chosen is not None),
        "classes": list(data.classes),
        "outlines": True,
        "points": panels.points(places, labels),
        **geometry.plain(piece),
    }
    made = cast("Panel", values)
    if isinstance(piece, geometry.Slice):
        margins = geometry.exact_margin(piece, places.to(piece.maps.device), labels, signed=True, outside="edge")
        made["points"] = panels.points(places, labels, margins=margins, box=box)
    if chosen is not None:
        _add_images(made, part.x[picked], data.bounds)
    return made


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
    if isinstance(piece, geometry.Raster):
        rows, columns = piece.points.shape[:2]
        return (
            f"Drawn as a raster of {columns} × {rows} pixels, not exactly: the plane has more than "
            f"{piece.max_cells:,} cells. Colours are the predicted classes, axes {units}."
        )
    near = " within this plane" if slice_ else ""
    return (
        f"{len(piece):,} cells, exact: on each the network is affine. Colours are the predicted classes, the "
        f"thick line is the decision boundary, axes {units}. Point at a sample to see its exact distance to the "
        f"boundary{near}."
    )


def _add_images(made: Panel, x: Tensor, bounds: tuple[float, float] | None) -> None:
    """Add thumbnails to the samples if they are images."""
    if x.ndim != 4 or x.shape[1] not in (1, 3) or bounds is None:
        return
    low, high = bounds
    shown = ((x.double() - low) / (high - low)).clamp(0, 1)
    for point, image in zip(made["points"], shown):
        point["image"] = png.data_uri(image.tolist())
