"""A slice as JSON values, which `report.planes` draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from widemargin.checks import check_count, check_flag, check_number, check_type
from widemargin.geometry.slices import Raster, Slice

Corner: TypeAlias = "tuple[int, int]"


def plain(piece: Slice | Raster, *, cells: bool = True) -> dict[str, Any]:
    """`box` and `parts` and `boundary` of an exact slice, or `box` and `runs` of a raster, in the slice's coordinates.

    A part has its corners, its label, and the slope of the network on its cell, the largest singular value of J in the
    plane. A run is a part of a row of pixels of one label: (left, right, bottom, top, label). Of a network of one
    output, the label −1 is 0 here. Ties between cells appear once.

    Args:
        piece: the slice.
        cells: whether every cell is a part, or the parts are whole decision regions without slopes, of which a later
            one may cover an earlier one.
    """
    check_type("piece", piece, (Slice, Raster), "a Slice or Raster of geometry.slice2d")
    check_flag("cells", cells)
    if isinstance(piece, Raster):
        return {"box": list(piece.plane.box), "runs": _runs(piece)}
    parts, ties = piece.decisions(), piece.boundary()
    slopes = piece.ellipses().axes[:, 0].tolist()
    corners, counts = parts.polygons.corners.tolist(), parts.polygons.counts.tolist()
    ends = [[*min(segment), *max(segment)] for segment in ties.ends.tolist()]
    fine = 1e-9 * piece.plane.diagonal
    once = {tuple(round(number / fine) for number in row): row for row in ends}
    polygons = [rows[:count] for rows, count in zip(corners, counts)]
    labels = _indices(parts.label)
    whole = None if cells else merged(polygons, labels, fine)
    shown: list[dict[str, Any]]
    if whole is not None:
        shown = [{"corners": rows, "label": label} for rows, label in whole]
    else:
        owners = zip(polygons, labels, parts.cell.tolist())
        shown = [{"corners": rows, "label": label, "slope": slopes[cell]} for rows, label, cell in owners]
    return {"box": list(piece.plane.box), "parts": shown, "boundary": list(once.values())}


def outlines(piece: Slice, *, size: float, points: int = 48) -> list[list[list[float]]]:
    """The ellipses of J (sokolic, Fig. 1b) as closed lines, the largest of them with half-axis `size`.

    Only for cells that are large enough: in the others it would cover its neighbours.
    """
    check_type("piece", piece, Slice, "a Slice of geometry.slice2d")
    check_number("size", size, above=0.0)
    check_count("points", points)
    found = piece.ellipses()
    scale = size / max(float(found.axes.max()), 1e-300)
    angle = torch.linspace(0, 2 * math.pi, points + 1, dtype=torch.float64, device=found.axes.device)
    circle = torch.stack((angle.cos(), angle.sin()), dim=1)
    lines = torch.einsum("pk,ck,ckd->cpd", circle, scale * found.axes, found.directions)
    lines = found.centres[:, None] + lines @ torch.linalg.inv(piece.plane.frame).T
    kept = piece.cells.areas() > (0.8 * scale * found.axes[:, 0]) ** 2
    rows: list[list[list[float]]] = lines[kept].tolist()
    return rows


def _runs(raster: Raster) -> list[list[float | int]]:
    rows, columns = raster.points.shape[:2]
    left, right, bottom, top = raster.plane.box
    wide, high = (right - left) / columns, (top - bottom) / rows
    found: list[list[float | int]] = []
    for row, line in enumerate(raster.labels()):
        start = 0
        for label, run in itertools.groupby(_indices(line)):
            end = start + len(list(run))
            ends = [left + start * wide, left + end * wide, bottom + row * high, bottom + (row + 1) * high]
            found.append([*ends, label])
            start = end
    return found


def _indices(labels: Tensor) -> list[int]:
    """Class indices; ±1 become 1 and 0."""
    values = (labels > 0).long() if labels.is_floating_point() else labels
    rows: list[int] = values.tolist()
    return rows


def merged(
    polygons: Sequence[Sequence[Sequence[float]]], labels: Sequence[int], fine: float
) -> list[tuple[list[list[float]], int]] | None:
    """Outlines of the regions of each label, larger ones first; corners closer than `fine` are one.

    Polygons are counter-clockwise. Holes are left out: the regions in them come later in the list and are drawn over
    the outline. None if edges do not meet.
    """
    places: dict[Corner, list[float]] = {}
    edges: dict[int, dict[tuple[Corner, Corner], int]] = {}
    area = 0.0
    for polygon, label in zip(polygons, labels, strict=True):
        keys = [(round(corner[0] / fine), round(corner[1] / fine)) for corner in polygon]
        places.update(zip(keys, map(list, polygon)))
        mine = edges.setdefault(label, {})
        area += _area(polygon)
        for pair in zip(keys, keys[1:] + keys[:1]):
            if pair[0] == pair[1]:
                continue
            back = (pair[1], pair[0])
            if mine.get(back):
                mine[back] -= 1
            else:
                mine[pair] = mine.get(pair, 0) + 1
    found: list[tuple[float, list[list[float]], int]] = []
    for label, mine in edges.items():
        loops = _loops([pair for pair, count in mine.items() for _ in range(count)])
        if loops is None:
            return None
        for loop in loops:
            outline = [places[key] for key in loop]
            found.append((_area(outline), outline, label))
    if abs(sum(size for size, _, _ in found) - area) > 1e-6 * abs(area):
        return None
    found.sort(key=lambda entry: -entry[0])
    return [(outline, label) for size, outline, label in found if size > 0]


def _loops(pairs: list[tuple[Corner, Corner]]) -> list[list[Corner]] | None:
    """Closed walks along directed edges; None where a walk ends."""
    after: dict[Corner, list[Corner]] = {}
    for start, end in pairs:
        after.setdefault(start, []).append(end)
    loops = []
    while after:
        first = next(iter(after))
        loop, here = [first], _step(after, first)
        while here != first:
            if here not in after:
                return None
            if here in loop:  # visited twice: the part between is a loop
                begin = loop.index(here)
                loops.append(loop[begin:])
                del loop[begin:]
            loop.append(here)
            here = _step(after, here)
        loops.append(loop)
    return loops


def _step(after: dict[Corner, list[Corner]], here: Corner) -> Corner:
    ends = after[here]
    end = ends.pop()
    if not ends:
        del after[here]
    return end


def _area(corners: Sequence[Sequence[float]]) -> float:
    pairs = zip(corners, [*corners[1:], corners[0]])
    return sum(a[0] * b[1] - a[1] * b[0] for a, b in pairs) / 2
