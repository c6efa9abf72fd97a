"""Union of neighbouring polygons of one label: the edges that remain when shared ones cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Corner: TypeAlias = "tuple[int, int]"


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
        keys = [_key(corner, fine) for corner in polygon]
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
            if here is None or here not in after:
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


def _key(corner: Sequence[float], fine: float) -> Corner:
    return round(corner[0] / fine), round(corner[1] / fine)


def _area(corners: Sequence[Sequence[float]]) -> float:
    pairs = zip(corners, [*corners[1:], corners[0]])
    return sum(a[0] * b[1] - a[1] * b[0] for a, b in pairs) / 2
