"""The norm chain of sokolic, Theorem 3: bounds of the distance between two outputs of a network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.geometry.lines import averages, read_pair
from widemargin.geometry.network import Network
from widemargin.layers.forms import Affine, Form

_DENSE = 1024  # operators with a side of at most this many entries are decomposed as dense matrices


@dataclass(frozen=True, kw_only=True)
class NormChain:
    """moved = averaged ≤ jacobian ≤ spectral ≤ frobenius, `[batch]` each (sokolic (12))."""

    moved: Tensor  # ‖f(x2) − f(x)‖
    averaged: Tensor  # ‖J̄·(x2 − x)‖
    jacobian: Tensor  # ‖J̄‖_2·‖x2 − x‖
    spectral: Tensor  # Π‖W_i‖_2·‖x2 − x‖
    frobenius: Tensor  # Π‖W_i‖_F·‖x2 − x‖


def norm_chain(model: nn.Module, x: Float[Tensor, "batch ..."], x2: Float[Tensor, "batch ..."]) -> NormChain:
    """‖f(x2) − f(x)‖ = ‖J̄(x2 − x)‖ ≤ Π‖W_i‖_2·‖x2 − x‖ ≤ Π‖W_i‖_F·‖x2 − x‖ (sokolic (12)), with ‖J̄‖_2·‖x2 − x‖ between.

    A convolution counts as a linear operator. Both products contain the Lipschitz constants of steps that are not in
    the paper: the larger slope of activations, the spectral norms of BatchNorm and average pools, and for overlapping
    max-pools the root of the number of windows that share an entry.
    """
    network, start, end = read_pair(model, x, x2)
    J = averages(network, start, end).flatten(2)
    distance = torch.linalg.vector_norm((end - start).flatten(1), dim=1)
    with torch.no_grad():
        moved = torch.linalg.vector_norm(network.forward(end) - network.forward(start), dim=1)
    averaged = torch.linalg.vector_norm(torch.einsum("bon,bn->bo", J, (end - start).flatten(1)), dim=1)
    products = factors(network)
    return NormChain(
        moved=moved,
        averaged=averaged,
        jacobian=torch.linalg.matrix_norm(J, ord=2) * distance,
        spectral=math.prod(spectral for spectral, _ in products) * distance,
        frobenius=math.prod(frobenius for _, frobenius in products) * distance,
    )


@torch.no_grad()
def factors(network: Network) -> list[tuple[float, float]]:
    """(‖·‖_2, ‖·‖_F) of each step; a step without weights has its Lipschitz constant twice."""
    return [_factor(step) for step in network.steps]


def _factor(step: Form) -> tuple[float, float]:
    if not isinstance(step, Affine) or step.moves:
        return step.lipschitz, step.lipschitz
    size, outputs = step.zeros.numel(), step.linear(step.zeros).numel()
    dense = min(size, outputs) <= _DENSE and size * outputs <= 2**24
    square, rows = 0.0, []
    for part in torch.arange(size, device=step.zeros.device).split(256):
        basis = step.zeros.new_zeros(len(part), size).scatter(1, part[:, None], 1.0)
        image = step.linear(basis.view(-1, *step.zeros.shape[1:])).flatten(1)
        square += float(image.square().sum())
        rows += [image] if dense else []
    spectral = float(torch.linalg.matrix_norm(torch.cat(rows), ord=2)) if dense else step.lipschitz
    return spectral, math.sqrt(square) if step.is_weight else spectral
