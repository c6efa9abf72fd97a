"""Plane slices: all cells of a network in a box of a plane, with their affine maps, decisions and boundaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from widemargin.checks import check_count, check_one, check_several
from widemargin.geometry.cells import partition, split, ties
from widemargin.geometry.network import read
from widemargin.geometry.polygons import Plane, Polygons
from widemargin.layers.network import Network

TOLERANCE = 1e-12
"""Lines closer than this to the border of a cell, relative to the diagonal of the box, do not cut it."""


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Parts of cells on which one class wins: convex polygons, the cell each is part of, and its label."""

    polygons: Polygons
    cell: Int[Tensor, " parts"]
    label: Shaped[Tensor, " parts"]


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The decision boundary as segments in slice coordinates, and the two labels that tie on each."""

    ends: Float[Tensor, "segments 2 2"]
    labels: Shaped[Tensor, "segments 2"]
    cell: Int[Tensor, " segments"]


@dataclass(frozen=True, kw_only=True)
class Ellipses:
    """The Jacobian of each cell: its centre, its two largest singular values and its right singular vectors."""

    centres: Float[Tensor, "cells 2"]
    axes: Float[Tensor, "cells 2"]
    directions: Float[Tensor, "cells 2 2"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Slice:
    """The exact partition of a plane: cells as convex polygons, and f = p₁·maps₁ + p₂·maps₂ + maps₃ on each.

    Points p of the slice stand for inputs origin + p₁·u + p₂·v. Labels are class indices, or ±1 for one output.
    """

    exact: ClassVar[bool] = True
    plane: Plane
    network: Network
    cells: Polygons
    maps: Float[Tensor, "cells 3 outputs"]

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        return f"Slice({len(self)} cells, exact, box={self.plane.box})"

    @torch.no_grad()
    def scores(self, points: Float[Tensor, "points 2"]) -> Float[Tensor, "points outputs"]:
        """f at points of the slice."""
        return self.network.forward(self.plane.inputs(points))

    def decisions(self) -> Decisions:
        """The decision regions, cell by cell: in a cell all scores are affine, so that each part is a polygon."""
        cut = split(self.cells, self._rivals(), self._tolerance)
        return Decisions(polygons=cut.polygons, cell=cut.parent, label=self._labels(cut.winner))

    def boundary(self) -> Boundary:
        """The points where the two largest scores tie, as segments.

        Where the tie is a border between two cells, its segment is listed once for each of them.
        """
        ends, pair, cell = ties(self.cells, self._rivals(), self._tolerance)
        return Boundary(ends=ends, labels=self._labels(pair), cell=cell)

    def ellipses(self) -> Ellipses:
        """J on each cell as an ellipse (sokolic, Fig. 1b), in the coordinates of an orthonormal basis of the plane.

        Erratum 1: axes are singular values and singular vectors, where the text says eigenvalues. For sokolic's f take
        the slice of the network without its classifier.
        """
        J = self.maps[:, :2].transpose(1, 2) @ torch.linalg.inv(self.plane.frame)
        if J.shape[1] == 1:
            J = torch.cat((J, torch.zeros_like(J)), dim=1)
        _, axes, directions = torch.linalg.svd(torch.linalg.qr(J).R)
        return Ellipses(centres=self.cells.centroids(), axes=axes, directions=directions)

    @property
    def _tolerance(self) -> float:
        return TOLERANCE * self.plane.diagonal

    def _rivals(self) -> Tensor:
        if self.maps.shape[2] > 1:
            return self.maps
        return torch.cat((self.maps, torch.zeros_like(self.maps)), dim=2)

    def _labels(self, winner: Tensor) -> Tensor:
        return winner if self.maps.shape[2] > 1 else 1.0 - 2.0 * winner


@dataclass(frozen=True, kw_only=True, repr=False)
class Raster:
    """A plane with too many cells for a `Slice`: scores at the centres of pixels, `[rows, columns, outputs]`.

    Not exact: cells and boundaries smaller than a pixel are missed. Rows go up with p₂, columns with p₁.
    """

    exact: ClassVar[bool] = False
    plane: Plane
    max_cells: int
    points: Float[Tensor, "rows columns 2"]
    scores: Float[Tensor, "rows columns outputs"]

    def __repr__(self) -> str:
        rows, columns = self.points.shape[:2]
        return f"Raster({columns}×{rows} pixels, not exact: more than {self.max_cells} cells, box={self.plane.box})"

    def labels(self) -> Shaped[Tensor, "rows columns"]:
        """The label of each pixel's centre."""
        if self.scores.shape[2] > 1:
            return self.scores.argmax(dim=2)
        return torch.where(self.scores[:, :, 0] > 0, 1.0, -1.0)


def slice2d(
    model: nn.Module,
    origin: Float[Tensor, "*shape"],
    u: Float[Tensor, "*shape"],
    v: Float[Tensor, "*shape"],
    box: Sequence[float | int],
    *,
    max_cells: int = 20_000,
    pixels: int = 256,
) -> Slice | Raster:
    """The partition of {origin + p₁u + p₂v} into the regions of the network (sokolic §III-A), exactly, in float64.

    Layer by layer, each cell is cut by the units that change on it, which in the cell are affine.

    Args:
        model: the network.
        origin: an input, without batch.
        u: first direction, of any length.
        v: second direction, not parallel to `u`.
        box: (least p₁, largest p₁, least p₂, largest p₂).
        max_cells: with more cells than this, a `Raster` is returned.
        pixels: columns and rows of that raster.
    """
    check_count("max_cells", max_cells)
    check_count("pixels", pixels)
    for name, tensor in (("origin", origin), ("u", u), ("v", v)):
        check_one(tensor, name)
    check_several("box", box, "(-1, 1, -1, 1)")
    network = read(model, origin[None])
    plane = Plane.through(network, origin, u, v, box)
    parts = partition(network, plane, tolerance=TOLERANCE * plane.diagonal, max_cells=max_cells)
    if parts is None:
        return _raster(network, plane, max_cells, pixels)
    return Slice(plane=plane, network=network, cells=parts[0], maps=parts[1])


@torch.no_grad()
def _raster(network: Network, plane: Plane, max_cells: int, pixels: int) -> Raster:
    left, right, bottom, top = plane.box
    steps = (torch.arange(pixels, dtype=torch.float64, device=network.device) + 0.5) / pixels
    p2, p1 = torch.meshgrid(bottom + (top - bottom) * steps, left + (right - left) * steps, indexing="ij")
    points = torch.stack((p1, p2), dim=2)
    rows = max(1, 2**20 // math.prod(network.shape))
    scores = [network.forward(plane.inputs(part)) for part in points.flatten(0, 1).split(rows)]
    return Raster(
        plane=plane, max_cells=max_cells, points=points, scores=torch.cat(scores).unflatten(0, points.shape[:2])
    )
