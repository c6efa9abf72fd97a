"""Covering numbers: the number of l_2 balls of a radius that cover the data (sokolic, §II-A)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from widemargin import norms
from widemargin.checks import check_count


@dataclass(frozen=True, kw_only=True)
class GaussianMixture:
    """N_ε = L(1 + 2/ε)^k of L Gaussians with covariances of rank at most k, in the unit ball (errata 5)."""

    components: int
    rank: int

    def __post_init__(self) -> None:
        check_count("components", self.components)
        check_count("rank", self.rank)

    def log_number(self, radius: float, x: Tensor) -> float:
        """ln N at `radius`, in units of the largest ‖x‖_2: the data is scaled into the unit ball."""
        return math.log(self.components) + self.rank * math.log1p(2 * largest(x) / radius)


@dataclass(frozen=True, kw_only=True)
class SparseDictionary:
    """N_ε = L^k(1 + 2/ε)^k of signals that are k-sparse in a dictionary of L atoms, in the unit ball (errata 5)."""

    atoms: int
    sparsity: int

    def __post_init__(self) -> None:
        check_count("atoms", self.atoms)
        check_count("sparsity", self.sparsity)
        if self.sparsity > self.atoms:
            raise ValueError(f"sparsity is {self.sparsity}, but the dictionary has {self.atoms} atoms")

    def log_number(self, radius: float, x: Tensor) -> float:
        """ln N at `radius`, in units of the largest ‖x‖_2: the data is scaled into the unit ball."""
        return self.sparsity * (math.log(self.atoms) + math.log1p(2 * largest(x) / radius))


@dataclass(frozen=True, kw_only=True)
class GreedyCovering:
    """Greedy covering of the samples: each sample outside all balls is the centre of a new one.

    It covers the samples, not their distribution: new samples may lie outside all balls, so a bound from it is an
    estimate. There are at most as many balls as samples, and at most N of half the radius.
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
