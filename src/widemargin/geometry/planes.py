"""A box of a plane in input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.geometry.network import Network, check_inputs
from widemargin.geometry.polygons import Polygons


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
            check_inputs(name, value[None])
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
