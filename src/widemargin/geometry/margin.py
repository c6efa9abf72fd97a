"""The exact distance of points of a plane slice from the decision boundary in it."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.checks import check_batch, check_choice, check_flag, check_labels
from widemargin.geometry.slices import Slice
from widemargin.margins.output import output
from widemargin.types import Labels, PerExample


def exact_margin(
    piece: Slice,
    points: Float[Tensor, "batch 2"],
    y: Labels,
    *,
    signed: bool = False,
    outside: Literal["raise", "edge"] = "raise",
) -> PerExample:
    """γ_in(x) = sup{c : ‖x − x′‖ ≤ c ⟹ x′ has the label of x} (sokolic (14)), within the slice, in input units.

    0 for misclassified points (erratum 2), or with `signed` minus the distance to the nearest point that would be
    classified correctly. For inputs of two dimensions this is the input margin; in more dimensions, where the boundary
    may be closer off the plane, it is an upper bound of it.

    Args:
        piece: an exact slice; a raster has no exact margins.
        points: points `[batch, 2]` of the slice, in its coordinates and inside its box.
        y: class indices, or ±1 for a network of one output.
        signed: whether misclassified points get a negative distance.
        outside: for a point that is nearer to the edge of the box than to any boundary in it: "raise" a `ValueError`,
            or return the distance to the "edge", a lower bound of the margin's absolute value.
    """
    if not isinstance(piece, Slice):
        raise TypeError(f"piece is {piece!r}, expected an exact Slice")
    check_choice("outside", outside, ("raise", "edge"))
    check_flag("signed", signed)
    check_batch(points, "points")
    check_labels(y, len(points))
    if points.shape[1:] != (2,):
        raise ValueError(f"points has shape {list(points.shape)}, expected [batch, 2]: coordinates in the slice")
    points = points.to(piece.maps)
    low, high = points.new_tensor(piece.plane.box).view(2, 2).T
    beyond = (~((points >= low) & (points <= high)).all(dim=1)).nonzero()
    if len(beyond):
        index = int(beyond[0])
        raise ValueError(f"points[{index}] is {points[index].tolist()}, outside the box {piece.plane.box}")
    y = y.to(points.device)
    right = output(piece.scores(points), y) > 0
    found = piece.boundary()
    ends = found.ends @ piece.plane.frame.T
    places = points @ piece.plane.frame.T
    every = _distances(places, ends)
    if signed:
        # Of a misclassified point only a boundary of its own class counts.
        own = (found.labels[None] == y.to(found.labels.dtype)[:, None, None]).any(dim=2)
        every = torch.where(right, every, _distances(places, ends, own))
    corners = piece.plane.outline().corners[0] @ piece.plane.frame.T
    sides = torch.stack((corners, corners.roll(-1, 0)), dim=1)
    edge = _distances(places, sides)
    unseen = (edge < every) & (right | signed)
    if outside == "raise" and bool(unseen.any()):
        index = int(unseen.nonzero()[0])
        where = f"is {float(edge[index]):.6g} from the edge of the box {piece.plane.box} and no boundary is closer"
        raise ValueError(f"points[{index}] {where}: give a wider box, or outside='edge' for a lower bound")
    every = torch.minimum(every, edge)
    return torch.where(right, every, -every if signed else torch.zeros_like(every))


def _distances(points: Tensor, segments: Tensor, counts: Tensor | None = None) -> Tensor:
    """The distance of each point to the nearest of the segments that count for it (None: all); ∞ if there are none."""
    if counts is None:
        counts = torch.ones(1, len(segments), dtype=torch.bool, device=points.device)
    if len(segments) == 0:
        return torch.full_like(points[:, 0], torch.inf)
    found = []
    start, span = segments[:, 0], segments[:, 1] - segments[:, 0]
    for part, mask in zip(points.split(1024), counts.expand(len(points), -1).split(1024)):
        gap = part[:, None] - start
        share = ((gap * span).sum(dim=2) / span.square().sum(dim=1)).clamp(0, 1)
        far = torch.linalg.vector_norm(gap - share[..., None] * span, dim=2)
        found.append(torch.where(mask, far, torch.inf).amin(dim=1))
    return torch.cat(found)
