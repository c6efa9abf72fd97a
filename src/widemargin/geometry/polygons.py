"""Batches of convex polygons: cuts by lines, areas and centroids.

A batch of polygons is `[cells, corners, 2]`, counter-clockwise, padded by repeating the last corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
        return _packed(torch.stack((self.corners, points), dim=2).flatten(1, 2), chosen)

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


def _packed(points: Tensor, chosen: Tensor) -> Polygons:
    """The chosen points of each row moved to its front, in order, the rest filled with the last of them."""
    counts = chosen.sum(dim=1)
    most = max(int(counts.max()), 3) if len(counts) else 3
    order = torch.argsort((~chosen).to(torch.uint8), dim=1, stable=True)
    place = torch.minimum(torch.arange(most, device=points.device)[None], (counts - 1).clamp(min=0)[:, None])
    index = order.gather(1, place)
    return Polygons(corners=points.gather(1, index[:, :, None].expand(-1, -1, 2)), counts=counts)
