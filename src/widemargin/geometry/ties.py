"""Segments on which the two largest of some affine functions tie inside convex polygons."""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin.geometry.cells import depths
from widemargin.geometry.polygons import Polygons


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
