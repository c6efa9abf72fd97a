"""Slow, obvious versions of the bounds: layers as explicit matrices, norms entry by entry, margins by dense search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


def matrix_of(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The matrix of a linear layer on inputs of `shape`, its bias taken off, column by column."""
    size = math.prod(shape)
    zero = layer(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
    columns = []
    for k in range(size):
        unit = torch.zeros(size, dtype=torch.float64)
        unit[k] = 1.0
        columns.append(layer(unit.view(1, *shape)).flatten() - zero)
    return torch.stack(columns, dim=1).detach()


def frobenius(matrix: Tensor) -> float:
    return math.sqrt(sum(float(entry) ** 2 for entry in matrix.flatten()))


def two_one(matrix: Tensor) -> float:
    """The sum of the l_2 norms of the rows."""
    return sum(math.sqrt(sum(float(entry) ** 2 for entry in row)) for row in matrix)


def spectral_complexity(matrices: list[Tensor], references: list[Tensor], factor: float) -> float:
    total, product = 0.0, factor
    for matrix, reference in zip(matrices, references, strict=True):
        size = float(torch.linalg.svdvals(matrix)[0])
        product *= size
        total += (two_one(matrix - reference) / size) ** (2 / 3)
    return product * total**1.5


def relu_values(matrices: list[Tensor], x: Tensor) -> list[Tensor]:
    """f^1, …, f^L of one input of a fully connected ReLU network without biases."""
    values, h = [], x
    for matrix in matrices:
        values.append(matrix @ h)
        h = values[-1].clamp(min=0)
    return values


def relu_jacobian(matrices: list[Tensor], values: list[Tensor], i: int, j: int) -> Tensor:
    """J^{i,j} at f^i, as the product of matrices and of ReLUs as diagonal zeros and ones."""
    jacobian = torch.eye(len(values[i]), dtype=torch.float64)
    for k in range(i + 1, j + 1):
        jacobian = matrices[k] @ torch.diag((values[k - 1] > 0).double()) @ jacobian
    return jacobian


def cushions(matrices: list[Tensor], x: Tensor) -> tuple[list[float], dict[tuple[int, int], float], float]:
    """Layer cushions, interlayer cushions by pair of layers, activation contraction."""
    layer = [math.inf] * len(matrices)
    between = dict.fromkeys(itertools.combinations(range(len(matrices)), 2), math.inf)
    contraction = 1.0
    for sample in x:
        values = relu_values(matrices, sample)
        entering = [sample, *(value.clamp(min=0) for value in values[:-1])]
        for i, matrix in enumerate(matrices):
            layer[i] = min(layer[i], float(values[i].norm() / (frobenius(matrix) * entering[i].norm())))
            if i + 1 < len(matrices):
                contraction = max(contraction, float(values[i].norm() / entering[i + 1].norm()))
        for i, j in between:
            size = frobenius(relu_jacobian(matrices, values, i, j))
            between[i, j] = min(between[i, j], float(values[j].norm() / (size * values[i].norm())))
    return layer, between, contraction


def input_margin_2d(decide: Callable[[Tensor], Tensor], x: Tensor, radius: float) -> float:
    """The distance of the nearest point of a dense polar grid around `x` that is decided otherwise; ∞ if none is."""
    angles = torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)
    lengths = torch.linspace(0, radius, 201, dtype=torch.float64)
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    points = x + lengths[:, None, None] * directions
    other = decide(points.view(-1, 2)).view(len(lengths), len(angles)) != decide(x[None])
    reached = other.any(dim=1).nonzero()
    return float(lengths[int(reached[0])]) if len(reached) else math.inf
