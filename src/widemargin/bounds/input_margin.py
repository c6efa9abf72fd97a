"""Lower bounds of the input margin of each sample from its output margin (sokolic, Theorem 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from widemargin.bounds.chain import chain_of
from widemargin.bounds.jacobian import jacobian_estimate, jacobian_exact
from widemargin.bounds.result import Certificate, MarginEstimate
from widemargin.checks import check_choice, check_count, check_scores_and_labels
from widemargin.modules import predict, unwrap
from widemargin.types import Labels, PerExample, is_binary


@dataclass(frozen=True, kw_only=True, eq=False)
class InputMargin:
    """γ_out of every sample, and bounds of γ_in: `frobenius` ≤ `spectral` ≤ γ_in, and `jacobian`.

    `jacobian` is a certificate if it is exact, and None if `directions` is 0.
    """

    output: PerExample
    frobenius: Certificate
    spectral: Certificate
    jacobian: Certificate | MarginEstimate | None
    frobenius_product: float
    spectral_product: float
    lipschitz_factor: float

    def __str__(self) -> str:
        shown = (self.frobenius, self.spectral, self.jacobian)
        return "\n".join(["input margin (sokolic, Theorem 5)", *(f"  {part}" for part in shown if part is not None)])


def input_margin(
    model: nn.Module,
    x: Tensor,
    labels: Labels,
    *,
    jacobian: Literal["estimate", "exact"] = "estimate",
    directions: int = 8,
    steps: int = 16,
    seed: int = 0,
    batch_size: int = 256,
) -> InputMargin:
    """γ_in ≥ sup{c : ‖x−x_i‖ ≤ c ⇒ r^J > 1} (19) ≥ γ_out/Π‖W_l‖_2 ≥ γ_out/Π‖W_l‖_F (20) (sokolic, Theorem 5).

    γ_out = min_{c≠y} (f_y − f_c)/‖v_y − v_c‖_2, with v_c the rows of the last layer and W_l the layers below it; a
    binary network has one v. The spectral product is not in the paper and lies between its two. Both products carry
    the Lipschitz constants of activations, BatchNorm (evaluation mode) and overlapping pools, and convolutions are
    operators: ‖kernel‖_F would certify too much. A misclassified sample has margin 0 (errata 2).

    The two products are certificates. (19) depends on all regions of a ball, which can be enumerated only in 2-D: there
    `jacobian="exact"` gives a third certificate. Elsewhere it is an estimate (errata 6): from finitely many directions
    it tends to be too high.

    Args:
        model: a chain of layers, biases allowed, see `chain.chain_of`.
        x: inputs.
        labels: class indices, or ±1 for a network with one output.
        jacobian: (19) as an "estimate", or for inputs of two dimensions "exact", see `geometry.jacobian_margin`.
        directions: random directions of the estimate of (19), beside that of the gradient; 0 leaves it out.
        steps: points of the average Jacobian along each direction.
        seed: seed of the directions.
        batch_size: samples at a time.
    """
    check_count("directions", directions, least=0)
    check_count("steps", steps, least=2)
    check_count("batch_size", batch_size)
    check_choice("jacobian", jacobian, ("estimate", "exact"))
    if jacobian == "exact" and tuple(x.shape[1:]) != (2,):
        raise ValueError(f"jacobian is 'exact', but x has shape {list(x.shape)}, expected [batch, 2]")
    chain = chain_of(model, x, biases="ignore", batch_norm=True)
    *hidden, last = chain.weights
    if not isinstance(last.module, nn.Linear):
        raise TypeError(f"layer {last.name!r} is a {type(last.module).__name__}, expected a Linear layer at the end")
    network = unwrap(model)
    scores = predict(network, x, batch_size=batch_size)
    gamma = output_margin(scores, labels.to(scores.device), last.weight).cpu()
    spectral = math.prod((link.lipschitz for link in hidden), start=1.0)
    frobenius = math.prod((link.frobenius for link in hidden), start=1.0)
    nineteen: Certificate | MarginEstimate | None = None
    if jacobian == "exact":
        nineteen = jacobian_exact(network, x, labels)
    elif directions:
        nineteen = jacobian_estimate(network, x, labels, directions, steps, seed, batch_size)
    return InputMargin(
        output=gamma,
        frobenius=Certificate(what="γ_out/Π‖W‖_F (20)", values=gamma / (frobenius * chain.factor)),
        spectral=Certificate(what="γ_out/Π‖W‖_2", values=gamma / (spectral * chain.factor)),
        jacobian=nineteen,
        frobenius_product=frobenius,
        spectral_product=spectral,
        lipschitz_factor=chain.factor,
    )


def output_margin(scores: Tensor, labels: Tensor, classifier: Tensor) -> PerExample:
    """max(min_{c≠y} (f_y − f_c)/‖v_y − v_c‖_2, 0) in float64 (sokolic, 13): the distance to the nearest class."""
    check_scores_and_labels(scores, labels, finite=True)
    f = scores.double()
    v = classifier.to(f)
    if is_binary(scores):
        return (f.reshape(-1) * labels / torch.linalg.vector_norm(v)).clamp(min=0)
    y = labels.long()
    gaps = f.gather(1, y[:, None]) - f
    between = torch.linalg.vector_norm(v[:, None] - v, dim=2)[y]
    # Two classes with one vector and different biases never meet: the sign of the gap does not change.
    far = torch.where(gaps > 0, math.inf, 0.0)
    ratio = torch.where(between > 0, gaps / between, far)
    return ratio.scatter(1, y[:, None], math.inf).amin(dim=1).clamp(min=0)
