"""The sets R, R^J and R^F around a sample, and their curves r^J = 1 and r^F = 1 in the plane (sokolic, Fig. 1d)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin.checks import check_batch, check_count, check_labels, check_number
from widemargin.geometry.jacobian_margin import Rays
from widemargin.geometry.lines import averages, factors
from widemargin.geometry.network import read
from widemargin.layers.forms import Affine
from widemargin.layers.network import Network
from widemargin.types import Mask


@dataclass(frozen=True, kw_only=True)
class Sets:
    """The depth of each point inside each set, as a distance of features: > 0 inside, 0 where r = 1, < 0 outside.

    `decision` is of R, `jacobian` of R^J, `frobenius` of R^F; decision ≥ jacobian ≥ frobenius, so R^F ⊆ R^J ⊆ R.
    """

    decision: Float[Tensor, " batch"]
    jacobian: Float[Tensor, " batch"]
    frobenius: Float[Tensor, " batch"]

    def members(self) -> tuple[Mask, Mask, Mask]:
        """Whether each point is in R, in R^J and in R^F."""
        return self.decision > 0, self.jacobian > 0, self.frobenius > 0


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Distances of the curves from the sample per ray: first crossing of r^J = 1 (∞ beyond `reach`), and r^F = 1."""

    angles: Float[Tensor, " directions"]
    jacobian: Float[Tensor, " directions"]
    frobenius: Float[Tensor, " directions"]


def sets(
    model: nn.Module, x: Float[Tensor, "one ..."], label: Shaped[Tensor, " one"], points: Float[Tensor, "batch ..."]
) -> Sets:
    """γ_out(x) − y·vᵀ(f(x) − f(x′))/‖v‖, γ_out(x) − ‖vᵀJ̄‖·‖x − x′‖/‖v‖ and γ_out(x) − Π‖W_l‖_F·‖x − x′‖ at points x′.

    Source: sokolic (16), (17). Erratum 2: r, r^J, r^F are quotients by what may be ≤ 0; membership is the sign of the
    differences, and the curve r = 1 is where they are 0. v is the classifier; of k classes, the least value over
    v = v_y − v_c. J̄ is the exact average Jacobian between x and x′. The product runs over the layers before the
    classifier, with the factors of `norm_chain`.

    Args:
        model: a network that ends in a linear layer.
        x: one correctly classified sample `[1, ...]`: the sets are only defined for γ_out(x) > 0.
        label: its label `[1]`.
        points: points x′, `[batch, ...]`.
    """
    check_batch(points, "points")
    check_batch(x, "x")
    if len(x) != 1 or x.shape[1:] != points.shape[1:]:
        raise ValueError(f"x has shape {list(x.shape)}, expected one sample as points has {list(points.shape)}")
    network = read(model, x)
    x, points = network.double(x), network.double(points)
    towards, size, gamma, product = output_margins(network, x, label)
    with torch.no_grad():
        scores = network.forward(points)
    distance = torch.linalg.vector_norm((points - x).flatten(1), dim=1)
    J = averages(network, x.expand_as(points).contiguous(), points).flatten(2)
    slopes = torch.linalg.vector_norm(torch.einsum("co,bon->bcn", towards, J), dim=2) / size
    return Sets(
        decision=(scores @ towards.T / size).amin(dim=1),
        jacobian=(gamma - slopes * distance[:, None]).amin(dim=1),
        frobenius=gamma.min() - product * distance,
    )


def curves(
    model: nn.Module,
    x: Float[Tensor, "1 2"],
    label: Shaped[Tensor, " 1"],
    *,
    directions: int = 720,
    reach: float | int = 10.0,
) -> Curves:
    """r^J = 1 and r^F = 1 (sokolic (17)) around one correctly classified sample, exactly on each ray.

    r^F = 1 is a circle of radius γ_out/Π‖W_l‖_F; of r^J = 1, each ray has its first crossing. For r = 1, the decision
    boundary, see `Slice.boundary`.
    """
    check_batch(x, "x")
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


def output_margins(network: Network, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Of one sample in float64: rows e_y − e_c (or ±1), their ‖v‖ and γ_out against each c; and Π‖W_l‖_F."""
    last = _classifier(network)
    classifier = network.pieces[last]
    assert isinstance(classifier, Affine)
    with torch.no_grad():
        here = network.forward(x)
    check_labels(label, 1, "label")
    towards = network.towards(x, label)[0]
    V = classifier.linear(torch.eye(*network.shapes[last], dtype=torch.float64, device=here.device)).T
    size = torch.linalg.vector_norm(towards @ V, dim=1)
    if not bool((size > 0).all()):
        raise ValueError("model has two classes of the same classifier vector, expected different ones")
    gamma = (towards @ here[0]) / size
    if not float(gamma.min()) > 0:
        raise ValueError(f"x has the output margin {float(gamma.min()):.6g}, expected one that is classified correctly")
    return towards, size, gamma, math.prod(frobenius for _, frobenius in factors(network)[:last])


def _classifier(network: Network) -> int:
    """The index of the last linear layer, after which entries only move."""
    for index, step in reversed(list(enumerate(network.pieces))):
        if isinstance(step, Affine) and step.is_weight and len(network.shapes[index]) == 1:
            return index
        if not (isinstance(step, Affine) and step.moves):
            break
    raise ValueError("model does not end in a linear layer, expected a classifier on features")
