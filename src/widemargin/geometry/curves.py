"""The curves r^J = 1 and r^F = 1 around a sample in the plane (sokolic, Fig. 1d), ray by ray."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin.geometry.jacobian_margin import output_margins
from widemargin.geometry.network import check_inputs, read
from widemargin.geometry.sectors import Rays


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Per direction how far the curve is from the sample: r^J = 1 as it is first met, ∞ beyond the reach; r^F = 1."""

    angles: Float[Tensor, " directions"]
    jacobian: Float[Tensor, " directions"]
    frobenius: Float[Tensor, " directions"]


def curves(
    model: nn.Module,
    x: Float[Tensor, "1 2"],
    label: Shaped[Tensor, " 1"],
    *,
    directions: int = 720,
    reach: float | int = 10.0,
) -> Curves:
    """r^J = 1 and r^F = 1 (sokolic (17)) around one sample that is classified right, exactly on each ray.

    r^F = 1 is a circle of radius γ_out/Π‖W_l‖_F. R^J need not be seen whole from the sample: what is behind the first
    meeting is left out. r = 1 is the decision boundary, see `Slice.boundary`.
    """
    check_inputs("x", x)
    if tuple(x.shape) != (1, 2):
        raise ValueError(f"x has shape {list(x.shape)}, expected one sample in the plane, [1, 2]")
    for name, value in (("directions", directions), ("reach", reach)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value!r}, expected a positive number")
    network = read(model, x)
    x = network.double(x)
    towards, size, gamma, product = output_margins(network, x, label)
    angles = torch.arange(directions, dtype=torch.float64, device=x.device) * (2 * math.pi / directions)
    rays = Rays.along(network, x, angles, torch.full_like(angles, float(reach)), towards)
    found = rays.first_crossings(gamma * size)
    return Curves(
        angles=angles,
        jacobian=torch.where(found <= reach, found, math.inf),
        frobenius=torch.full_like(angles, float(gamma.min()) / product),
    )
