"""The cells of a plane slice of a network, cut layer by layer, and the segments in them on which two functions tie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin.geometry.lines import cut_layers
from widemargin.geometry.polygons import Plane, Polygons, join
from widemargin.layers.forms import Kink
from widemargin.layers.network import Network

_NUMBERS = 2**23  # largest number of entries in the stacks and rivals of a chunk of cells


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Parts of cells: the polygon, the index of its cell, and the rival that is largest on it."""

    polygons: Polygons
    parent: Tensor
    winner: Tensor


class _TooManyCellsError(Exception):
    pass


@torch.no_grad()
def partition(network: Network, plane: Plane, *, tolerance: float, max_cells: int) -> tuple[Polygons, Tensor] | None:
    """The cells of `plane` and the affine map `[cells, 3, outputs]` on each; None if there are more than `max_cells`.

    A line closer than `tolerance` to a cell's border does not cut it.
    """
    count = 1  # of finished and waiting cells: each results in at least one cell

    def cut(kink: Kink, cells: Polygons, stack: Tensor) -> tuple[Polygons, Tensor, Tensor]:
        nonlocal count
        found = _cut_layer(kink, cells, stack, tolerance, max_cells - count + len(cells))
        count += len(found[0]) - len(cells)
        return found

    stack = torch.stack((plane.u, plane.v, plane.origin))[None]
    try:
        done = list(cut_layers(network, plane.outline(), stack, cut, _NUMBERS // 6))
    except _TooManyCellsError:
        return None
    return join([cells for cells, _ in done]), torch.cat([maps for _, maps in done])


def split(cells: Polygons, functions: Tensor, tolerance: float) -> Cut:
    """Every cell cut into the parts where each of its affine `functions` `[cells, 3, rivals]` is the largest.

    Each part is convex. Differences of two functions within `tolerance` of 0, as a distance from their line, count as
    ties; a part that is nowhere deeper than that inside its lines is left out.
    """
    rivals = functions.shape[2]
    pieces, parents, winners = [], [], []
    every = torch.arange(len(cells), device=functions.device)
    for i in range(rivals):
        part, parent = cells, every
        for j in range(rivals):
            if j == i or len(part) == 0:
                continue
            depth = depths(part, functions[parent][:, :, i] - functions[parent][:, :, j], tolerance)
            # If both are equal everywhere, the first wins.
            inside = (depth > 0).any(dim=1) | ((depth == 0).all(dim=1) & (i < j))
            part, parent, depth = part[inside], parent[inside], depth[inside]
            part = part.clip(depth[:, : part.corners.shape[1]])
            whole = part.counts >= 3
            part, parent = part[whole], parent[whole]
        pieces.append(part)
        parents.append(parent)
        winners.append(torch.full_like(parent, i))
    return Cut(polygons=join(pieces), parent=torch.cat(parents), winner=torch.cat(winners))


def depths(cells: Polygons, function: Tensor, tolerance: float) -> Tensor:
    """The depth of each corner inside {function ≥ 0}, 0 within `tolerance`; the value itself for constant functions."""
    values = cells.values(function[:, :, None])[:, 0]
    steep = torch.linalg.vector_norm(function[:, :2], dim=1, keepdim=True)
    flat = ~(steep > 0) | ~torch.isfinite(values)
    depth = torch.where(flat, values, values / torch.where(steep > 0, steep, 1.0))
    return torch.where(~flat & (depth.abs() <= tolerance), 0.0, depth)


def ties(cells: Polygons, functions: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Segments `[segments, 2, 2]` on which functions i < j tie above all others, the pairs (i, j), and their cells.

    Cells on which two functions are the same everywhere have no segment of that pair.
    """
    rivals = functions.shape[2]
    ends, pairs, owners = [], [], []
    for i in range(rivals):
        for j in range(i + 1, rivals):
            segment, cell = _tie(cells, functions[:, :, i] - functions[:, :, j], tolerance)
            lead = functions[cell][:, :, i : i + 1] - functions[cell]
            lead[:, :, [i, j]] = 0.0
            segment, kept = _where_ahead(segment, lead, tolerance)
            ends.append(segment)
            owners.append(cell[kept])
            pairs.append(torch.tensor([[i, j]], device=cell.device).expand(len(segment), 2))
    return torch.cat(ends), torch.cat(pairs), torch.cat(owners)


def _cut_layer(
    kink: Kink, cells: Polygons, stack: Tensor, tolerance: float, most: int
) -> tuple[Polygons, Tensor, Tensor]:
    """Children of `cells` on which no unit of the layer changes: polygons, parents and the winner of each unit."""
    rivals = kink.rivals(stack)  # [cells, 3, units, rivals]
    winners, undecided = _winners(rivals, cells, tolerance)
    parent = torch.arange(len(cells), device=stack.device)
    done: list[tuple[Polygons, Tensor, Tensor]] = []
    finished = 0
    while True:
        busy = undecided.any(dim=1)
        done.append((cells[~busy], parent[~busy], winners[~busy]))
        finished += len(done[-1][1])
        if finished + int(busy.sum()) > most:
            raise _TooManyCellsError
        if not bool(busy.any()):
            break
        cells, parent, winners, undecided = cells[busy], parent[busy], winners[busy], undecided[busy]
        # All cells at once: each is cut by the next unit that may change on it.
        unit = undecided.to(torch.uint8).argmax(dim=1)
        cut = split(cells, rivals[parent, :, unit], tolerance)
        unit, parent = unit[cut.parent], parent[cut.parent]
        winners, undecided = winners[cut.parent].clone(), undecided[cut.parent].clone()
        row = torch.arange(len(unit), device=unit.device)
        winners[row, unit], undecided[row, unit] = cut.winner, False
        cells = cut.polygons
    polygons, parents, chosen = zip(*done)
    return join(list(polygons)), torch.cat(parents), torch.cat(chosen)


def _winners(rivals: Tensor, cells: Polygons, tolerance: float) -> tuple[Tensor, Tensor]:
    """The winner of each unit at the centre of each cell, and whether another rival is larger anywhere in the cell."""
    count, _, units, number = rivals.shape
    flat = rivals.flatten(2)
    centre = cells.centroids()
    at_centre = torch.einsum("ckn,ck->cn", flat[:, :2], centre) + flat[:, 2]
    winner = at_centre.reshape(count, units, number).argmax(dim=2)
    best = rivals.gather(3, winner[:, None, :, None].expand(-1, 3, -1, 1))
    lead = best - rivals  # affine and ≥ 0 on the whole cell if ≥ 0 at its corners
    values = cells.values(lead.flatten(2)).reshape(count, units, number, -1)
    steep = torch.linalg.vector_norm(lead[:, :2], dim=1)[..., None]
    changes = (values < -tolerance * steep).any(dim=3).any(dim=2)
    return winner, changes


def _tie(cells: Polygons, difference: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The part of the line {difference = 0} in each cell that it meets in more than a point."""
    depth = depths(cells, difference, tolerance)
    meets = ~((depth > 0).all(dim=1) | (depth < 0).all(dim=1) | (depth == 0).all(dim=1))
    cell = meets.nonzero()[:, 0]
    cells, depth, difference = cells[cell], depth[cell], difference[cell]
    depth = depth[:, : cells.corners.shape[1]]
    points, on = cells.crossings(depth)
    along = torch.stack((-difference[:, 1], difference[:, 0]), dim=1)
    along = along / torch.linalg.vector_norm(along, dim=1, keepdim=True).clamp(min=1e-300)
    far = torch.einsum("cvk,ck->cv", points, along)
    first = torch.where(on, far, torch.inf).argmin(dim=1)
    last = torch.where(on, far, -torch.inf).argmax(dim=1)
    row = torch.arange(len(cell), device=cell.device)
    segment = torch.stack((points[row, first], points[row, last]), dim=1)
    long = on.any(dim=1) & (torch.linalg.vector_norm(segment[:, 1] - segment[:, 0], dim=1) > tolerance)
    return segment[long], cell[long]


def _where_ahead(segment: Tensor, lead: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The part of each segment on which every affine `lead` `[segments, 3, rivals]` is ≥ 0."""
    values = torch.einsum("sek,skr->ser", segment, lead[:, :2]) + lead[:, 2:]
    start, end = values[:, 0], values[:, 1]
    zero = start / torch.where(start == end, 1.0, start - end)
    low = torch.where((start < 0) & (end > 0), zero, 0.0).amax(dim=1)
    high = torch.where((start > 0) & (end < 0), zero, 1.0).amin(dim=1)
    behind = ((start <= 0) & (end <= 0) & (start + end < 0)).any(dim=1)
    span = segment[:, 1] - segment[:, 0]
    kept = ~behind & ((high - low) * torch.linalg.vector_norm(span, dim=1) > tolerance)
    part = torch.stack((segment[:, 0] + low[:, None] * span, segment[:, 0] + high[:, None] * span), dim=1)
    return part[kept], kept
