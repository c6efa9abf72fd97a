"""The sets R, R^J and R^F around a sample (sokolic, Fig. 1d)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin.checks import check_scores_and_labels
from widemargin.geometry.chain import factors
from widemargin.geometry.label_constraints import against
from widemargin.geometry.lines import averages
from widemargin.geometry.network import Network, check_inputs, read
from widemargin.layers.forms import Affine
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
    check_inputs("points", points)
    check_inputs("x", x)
    if len(x) != 1 or x.shape[1:] != points.shape[1:]:
        raise ValueError(
            f"x has shape {list(x.shape)}, expected one sample of the shape of points {list(points.shape)}"
        )
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


def output_margins(network: Network, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Of one sample in float64: rows e_y − e_c (or ±1), their ‖v‖ and γ_out against each c; and Π‖W_l‖_F."""
    last = _classifier(network)
    with torch.no_grad():
        here = network.forward(x)
    label = label.to(here.device)
    check_scores_and_labels(here, label)
    towards = against(here.shape[1], label[0])
    V = last.linear(torch.eye(_width(network, last), dtype=torch.float64, device=here.device)).T
    size = torch.linalg.vector_norm(towards @ V, dim=1)
    if not bool((size > 0).all()):
        raise ValueError("model has two classes of the same classifier vector, expected different ones")
    gamma = (towards @ here[0]) / size
    if not float(gamma.min()) > 0:
        raise ValueError(f"x has the output margin {float(gamma.min()):.6g}, expected one that is classified correctly")
    before = network.steps.index(last)
    return towards, size, gamma, math.prod(frobenius for _, frobenius in factors(network)[:before])


def _classifier(network: Network) -> Affine:
    for step in reversed(network.steps):
        if isinstance(step, Affine) and step.moves:
            continue
        if isinstance(step, Affine) and step.is_weight:
            return step
        break
    raise ValueError("model does not end in a linear layer, expected a classifier on features")


@torch.no_grad()
def _width(network: Network, last: Affine) -> int:
    x = torch.zeros(1, *network.shape, dtype=torch.float64, device=network.device)
    for step in network.steps[: network.steps.index(last)]:
        x = step.forward(x)
    if x.ndim != 2:
        raise ValueError("model does not end in a linear layer, expected a classifier on features")
    return x.shape[1]
