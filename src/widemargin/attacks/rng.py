"""Random numbers for attacks: of one generator, a batch draws what its samples would draw in turn."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from widemargin.data.seeds import generator

Seed: TypeAlias = int | torch.Generator
"""A seed, which leaves torch's global generator alone, or a CPU generator to take the numbers from."""


def as_generator(purpose: str, seed: Seed) -> torch.Generator:
    """`seed` itself, or a generator of its own for `purpose`."""
    return seed if isinstance(seed, torch.Generator) else generator(purpose, seed)


def uniform(rows: int, columns: int, draw: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), float64, on the CPU, row after row."""
    return torch.rand(rows, columns, dtype=torch.float64, generator=draw)


def normal(uniform: Tensor) -> Tensor:
    """Normal numbers by their quantiles; 2⁻⁵⁴ stands for a drawn 0, whose quantile is infinite.

    `torch.randn` would not do: its numbers depend on how the samples are grouped into batches.
    """
    return torch.special.ndtri(uniform.clamp_min(2.0**-54))
