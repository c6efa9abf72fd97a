"""Covering numbers: how many l_2 balls of a radius hold the data (sokolic, §II-A)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from widemargin import norms


@dataclass(frozen=True, kw_only=True)
class GaussianMixture:
    """N_ε = L(1 + 2/ε)^k of L Gaussians with covariances of rank at most k, in the unit ball (errata 5)."""

    components: int
    rank: int

    def __post_init__(self) -> None:
        _check_counts(components=self.components, rank=self.rank)

    def log_number(self, radius: float, x: Tensor) -> float:
        """ln N at `radius`, in units of the largest ‖x‖_2: the data is scaled into the unit ball."""
        return math.log(self.components) + self.rank * math.log1p(2 * largest(x) / radius)


@dataclass(frozen=True, kw_only=True)
class SparseDictionary:
    """N_ε = L^k(1 + 2/ε)^k of signals that are k-sparse in a dictionary of L atoms, in the unit ball (errata 5)."""

    atoms: int
    sparsity: int

    def __post_init__(self) -> None:
        _check_counts(atoms=self.atoms, sparsity=self.sparsity)

    def log_number(self, radius: float, x: Tensor) -> float:
        """ln N at `radius`, in units of the largest ‖x‖_2: the data is scaled into the unit ball."""
        return self.sparsity * (math.log(self.atoms) + math.log1p(2 * largest(x) / radius))


@dataclass(frozen=True, kw_only=True)
class GreedyCovering:
    """Balls around samples, one more for each sample that no ball holds yet.

    Of the samples, not of the space they come from: new samples may fall outside all balls, so that a bound from it is
    an estimate. Never more balls than samples, and at most N of half the radius (each centre needs a ball of its own).
    """

    def log_number(self, radius: float, x: Tensor) -> float:
        """ln of the number of balls of `radius`."""
        left = x.detach().flatten(1).double()
        count = 0
        while len(left):
            count += 1
            left = left[norms.lp(left - left[0], 2.0) > radius]
        return math.log(count)


Covering: TypeAlias = GaussianMixture | SparseDictionary | GreedyCovering
"""A model of the data whose covering number is known or counted."""


def largest(x: Tensor) -> float:
    """max ‖x‖_2; 1 where all inputs are 0."""
    return float(norms.lp(x.detach().to(torch.float64), 2.0).max()) or 1.0


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}, expected a positive integer")
