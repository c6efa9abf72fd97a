"""A box of a plane in input space, and batches of convex polygons in it: cuts by lines, areas and centroids.

A batch of polygons is `[cells, corners, 2]`, counter-clockwise, padded by repeating the last corner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from widemargin.checks import check_batch
from widemargin.layers.network import Network


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Inputs origin + p₁u + p₂v for p in a box; ‖frame·(p − q)‖ is the distance of two of them in input space."""

    origin: Tensor
    u: Tensor
    v: Tensor
    box: tuple[float, float, float, float]
    frame: Float[Tensor, "2 2"]

    @classmethod
    def through(cls, network: Network, origin: Tensor, u: Tensor, v: Tensor, box: Sequence[float | int]) -> Plane:
        """The plane, after a check of the arguments."""
        for name, value in (("u", u), ("v", v)):
            check_batch(value[None], name)
            if value.shape != origin.shape:
                raise ValueError(f"{name} has shape {list(value.shape)}, but origin has {list(origin.shape)}")
        if len(box) != 4 or not all(math.isfinite(side) for side in box) or box[0] >= box[1] or box[2] >= box[3]:
            raise ValueError(f"box is {tuple(box)}, expected (least p1, largest p1, least p2, largest p2)")
        u, v = network.double(u), network.double(v)
        sides = torch.stack((u.flatten(), v.flatten()), dim=1)
        frame = torch.linalg.qr(sides).R if len(sides) > 1 else torch.zeros(2, 2, dtype=torch.float64)
        lengths = torch.linalg.vector_norm(sides, dim=0)
        if not float(torch.linalg.det(frame).abs()) > 1e-12 * float(lengths.prod()):
            raise ValueError("u and v are parallel or zero, expected two directions that span a plane")
        frame = frame * frame.diagonal().sign()[:, None]  # the plane is not mirrored
        least, most, bottom, top = (float(side) for side in box)
        return cls(origin=network.double(origin), u=u, v=v, box=(least, most, bottom, top), frame=frame)

    @property
    def diagonal(self) -> float:
        """The diagonal of the box, in slice coordinates."""
        return math.hypot(self.box[1] - self.box[0], self.box[3] - self.box[2])

    def outline(self) -> Polygons:
        """The box as a polygon."""
        left, right, bottom, top = self.box
        corners = torch.tensor([[[left, bottom], [right, bottom], [right, top], [left, top]]], dtype=torch.float64)
        return Polygons(corners=corners.to(self.u.device), counts=torch.tensor([4], device=self.u.device))

    def inputs(self, points: Float[Tensor, "points 2"]) -> Float[Tensor, "points ..."]:
        """The inputs at points of the slice."""
        points = points.to(self.u)
        p1, p2 = (points[:, k].reshape(-1, *(1,) * self.u.ndim) for k in (0, 1))
        return self.origin + p1 * self.u + p2 * self.v


@dataclass(frozen=True, kw_only=True)
class Polygons:
    """Convex polygons: `corners` is `[cells, most, 2]`, of which the first `counts` of each row are used."""

    corners: Float[Tensor, "cells most 2"]
    counts: Int[Tensor, " cells"]

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: Tensor) -> Polygons:
        counts = self.counts[index]
        most = int(counts.max()) if len(counts) else 3
        return Polygons(corners=self.corners[index, :most], counts=counts)

    def areas(self) -> Float[Tensor, " cells"]:
        """Areas, by the shoelace formula about the first corner."""
        return self._triangles()[0].sum(dim=1)

    def centroids(self) -> Float[Tensor, "cells 2"]:
        """Centres of mass: inside, since the polygons are convex."""
        areas, centres = self._triangles()
        total = areas.sum(dim=1, keepdim=True)
        mean = self.corners.mean(dim=1)
        return torch.where(total > 0, (areas[:, :, None] * centres).sum(dim=1) / total.clamp(min=1e-300), mean)

    def values(self, functions: Float[Tensor, "cells 3 rivals"]) -> Float[Tensor, "cells rivals most"]:
        """Affine functions (two slopes and a constant) at the corners of their polygon."""
        linear = torch.einsum("ckr,cvk->crv", functions[:, :2], self.corners)
        return linear + functions[:, 2, :, None]

    def clip(self, values: Float[Tensor, "cells most"]) -> Polygons:
        """The part of each polygon where an affine function, given at the corners, is ≥ 0."""
        points, crossed = self._crossed(values)
        kept = (values >= 0) & self._real()
        chosen = torch.stack((kept, crossed), dim=2).flatten(1)
        points = torch.stack((self.corners, points), dim=2).flatten(1, 2)
        # The chosen points are moved to the front of their row, in order; the rest is filled with the last of them.
        counts = chosen.sum(dim=1)
        most = max(int(counts.max()), 3) if len(counts) else 3
        order = torch.argsort((~chosen).to(torch.uint8), dim=1, stable=True)
        place = torch.minimum(torch.arange(most, device=points.device)[None], (counts - 1).clamp(min=0)[:, None])
        index = order.gather(1, place)
        return Polygons(corners=points.gather(1, index[:, :, None].expand(-1, -1, 2)), counts=counts)

    def crossings(self, values: Float[Tensor, "cells most"]) -> tuple[Tensor, Tensor]:
        """Corners where an affine function is 0, points of edges where it changes sign, and which of them count."""
        points, crossed = self._crossed(values)
        return torch.cat((self.corners, points), dim=1), torch.cat(((values == 0) & self._real(), crossed), dim=1)

    def _crossed(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Of the edge after each corner, the point where the function is 0, and whether it changes its sign there."""
        following = (torch.arange(self.corners.shape[1], device=values.device) + 1) % self.counts.clamp(min=1)[:, None]
        after = values.gather(1, following)
        ends = self.corners.gather(1, following[:, :, None].expand(-1, -1, 2))
        crossed = (values.sign() * after.sign() < 0) & self._real()
        share = torch.where(crossed, values / torch.where(crossed, values - after, 1.0), 0.0)
        return self.corners + share[:, :, None] * (ends - self.corners), crossed

    def _real(self) -> Tensor:
        return torch.arange(self.corners.shape[1], device=self.corners.device) < self.counts[:, None]

    def _triangles(self) -> tuple[Tensor, Tensor]:
        first = self.corners[:, :1]
        one, two = self.corners[:, 1:-1] - first, self.corners[:, 2:] - first
        areas = (one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]) / 2
        return areas, first + (one + two) / 3


def join(parts: list[Polygons]) -> Polygons:
    """All polygons of `parts`, in order."""
    most = max((part.corners.shape[1] for part in parts), default=3)
    padded = []
    for part in parts:
        last = part.corners[:, -1:].expand(-1, most - part.corners.shape[1], -1)
        padded.append(torch.cat((part.corners, last), dim=1))
    return Polygons(corners=torch.cat(padded), counts=torch.cat([part.counts for part in parts]))
