"""How many networks to train at once."""

from __future__ import annotations

from dataclasses import dataclass

from widemargin.training.population.convolutions import Convolutions
from widemargin.training.population.run import Plan


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """So many networks at once, with convolutions of this form."""

    size: int
    convolutions: Convolutions


def choose(plan: Plan, *, size: int | None, convolutions: Convolutions | None) -> Chunk:
    """All networks at once, unless another size is asked for."""
    return Chunk(size=size or len(plan), convolutions=convolutions or "grouped")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether this error says that memory did not suffice."""
    import torch

    return isinstance(error, torch.OutOfMemoryError)
