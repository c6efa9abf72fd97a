"""The curves r^J = 1 and r^F = 1 around a sample in the plane (sokolic, Fig. 1d), on rays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin.checks import check_count, check_number
from widemargin.geometry.jacobian_margin import Rays
from widemargin.geometry.network import check_inputs, read
from widemargin.geometry.sets import output_margins


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Distances of the curves from the sample per ray: first crossing of r^J = 1 (∞ beyond `reach`), and r^F = 1."""

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
    """r^J = 1 and r^F = 1 (sokolic (17)) around one correctly classified sample, exactly on each ray.

    r^F = 1 is a circle of radius γ_out/Π‖W_l‖_F. Only the first crossing of r^J = 1 on each ray is returned. r = 1 is
    the decision boundary, see `Slice.boundary`.
    """
    check_inputs("x", x)
    if tuple(x.shape) != (1, 2):
        raise ValueError(f"x has shape {list(x.shape)}, expected one sample in the plane, [1, 2]")
    check_count("directions", directions)
    check_number("reach", reach, above=0.0)
    network = read(model, x)
    x = network.double(x)
    towards, size, gamma, product = output_margins(network, x, label)
    angles = torch.arange(directions, dtype=torch.float64, device=x.device) * (2 * math.pi / directions)
    rays = Rays.along(network, x, angles, torch.full_like(angles, float(reach)), towards)
    crossings = rays.first_crossings(gamma * size)
    return Curves(
        angles=angles,
        jacobian=torch.where(crossings <= reach, crossings, math.inf),
        frobenius=torch.full_like(angles, float(gamma.min()) / product),
    )
