"""Bartlett's spectral complexity and margin bound (odn, eq. 3; farhang, eq. 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.bounds.chain import Link, chain_of
from widemargin.bounds.result import Assumption, Bound
from widemargin.checks import check_batch, check_choice, check_count, check_labels, check_number, check_type
from widemargin.margins.normalized import Biases
from widemargin.margins.output import output
from widemargin.modules import evaluating, predict, unwrap
from widemargin.types import Labels

Convolutions = Literal["operator", "kernel"]


@dataclass(frozen=True, kw_only=True)
class SpectralLayer:
    """‖W_l‖_2 and ‖W_lᵀ − M_lᵀ‖_{2,1} of one layer."""

    name: str
    spectral: float
    deviation: Annotated[float, "‖W−M‖_2,1"]


@dataclass(frozen=True, kw_only=True)
class SpectralBound(Bound):
    """`value` = R̂_γ + ‖X‖_F R_w/(γ n), with every term of it."""

    source: ClassVar[str] = (
        "Bartlett's spectral margin bound (farhang, eq. 2), with constant 1 and without its logarithms"
    )
    ramp_loss: Annotated[float, "R̂_γ"]
    margin: Annotated[float, "γ"]
    complexity: Annotated[float, "R_w"]
    product: Annotated[float, "Π‖W_l‖_2"]
    lipschitz_factor: Annotated[float, "Π Lipschitz"]
    layers: tuple[SpectralLayer, ...]
    input_norm: Annotated[float, "‖X‖_F"]
    samples: Annotated[int, "n"]


def spectral(
    model: nn.Module,
    x: Tensor,
    y: Labels,
    *,
    margin: float,
    reference: nn.Module | Literal["identity"] | None = None,
    convolutions: Convolutions = "operator",
    biases: Biases = "refuse",
    batch_size: int = 256,
) -> SpectralBound:
    """R(f) ≲ R̂_γ(f) + ‖X‖_F R_w/(γ n) (farhang, eq. 2; Bartlett et al. 2017, Theorem 1.1).

    R_w = Π_l ‖W_l‖_2 · Π Lip(φ) · (Σ_l (‖W_lᵀ − M_lᵀ‖_{2,1}/‖W_l‖_2)^{2/3})^{3/2}, and R̂_γ is the mean of the ramp
    loss min(1, max(0, 1 − m/γ)) of the output margins m. The constant of the bound is taken as 1; its logarithms and
    √(ln(1/δ)/n) are left out, as farhang's eq. 2 does.

    Errata: the norm is the sum of the l_2 norms of the rows of W (farhang 9; odn's eq. 3 lacks the transpose), and
    √2·ReLU and overlapping pools carry their Lipschitz constants, 2^{(L−1)/2} for the former (farhang 11).

    Args:
        model: a chain of layers without biases, see `chain.chain_of`.
        x: the training inputs.
        y: class indices, or ±1 for a network with one output.
        margin: γ > 0, in units of the scores.
        reference: M, chosen before the data was seen: a network of the same shape, usually the initial one;
            `"identity"`, as in odn's eq. 3; None is zero.
        convolutions: the (2,1) norm of the operator, with a row per position, or of the kernel alone, as in
            `margins.normalized.spectral_complexity` (smaller, and not covered by the theorem).
        biases: refuse a network with biases, or leave them out of the norms.
        batch_size: samples at a time.
    """
    check_count("batch_size", batch_size)
    check_number("margin", margin, above=0.0)
    check_choice("convolutions", convolutions, ("operator", "kernel"))
    if isinstance(reference, str) and reference != "identity":
        raise ValueError(f"reference is {reference!r}, expected a network, 'identity' or None")
    check_type("reference", reference, (nn.Module, str, type(None)), "a network, 'identity' or None")
    check_batch(x, "x")
    check_labels(y, len(x))
    chain = chain_of(model, x, biases=biases)
    found = tuple(
        SpectralLayer(name=link.name, spectral=link.lipschitz, deviation=_deviation(link, reference, convolutions))
        for link in chain.weights
    )
    scores = predict(unwrap(model), x, batch_size=batch_size)
    margins = output(scores, y.to(scores.device))
    product = math.prod((layer.spectral for layer in found), start=1.0)
    summed = sum((layer.deviation / layer.spectral) ** (2 / 3) for layer in found) ** 1.5
    complexity = product * chain.factor * summed
    ramp = float((1 - margins.double() / margin).clamp(0, 1).mean())
    size = float(norms.frobenius(x.double()))
    return SpectralBound(
        value=ramp + size * complexity / (margin * len(x)),
        ramp_loss=ramp,
        complexity=complexity,
        product=product,
        lipschitz_factor=chain.factor,
        layers=found,
        input_norm=size,
        samples=len(x),
        margin=float(margin),
        assumptions=(
            chain.no_biases,
            Assumption(
                text="the reference M was chosen before the data was seen",
                holds=None if isinstance(reference, nn.Module) else True,
                found="a given network" if isinstance(reference, nn.Module) else f"M is {reference or 'zero'}",
            ),
        ),
    )


def _deviation(link: Link, reference: nn.Module | Literal["identity"] | None, convolutions: Convolutions) -> float:
    """‖Wᵀ − Mᵀ‖_{2,1}."""
    centre = torch.zeros_like(link.weight)
    if isinstance(reference, nn.Module):
        stored = dict(unwrap(reference).named_modules(remove_duplicate=False)).get(link.name.partition("#")[0])
        with evaluating(reference):
            weight, shape = getattr(stored, "weight", None), list(centre.shape)
        if not isinstance(weight, Tensor) or weight.shape != centre.shape:
            raise ValueError(f"reference has no weight of shape {shape} at {link.name!r}, as the network has")
        centre = weight.detach().to(centre)
    elif reference == "identity" and centre.ndim == 2:
        centre.fill_diagonal_(1.0)
    elif reference == "identity":
        nn.init.dirac_(centre, getattr(link.module, "groups", 1))
    moved = link.weight - centre
    return float(norms.two_one(moved) if convolutions == "kernel" else link.rows(moved).sum())
