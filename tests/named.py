"""A network that takes tensors by name, and the same network with a single tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemargin.modules import NamedInputs


class Masked(nn.Module):
    """Takes values and their mask, and returns a dict, as Hugging Face's networks do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(values * mask)}


class Fixed(nn.Module):
    """`Masked` with one mask, which is part of it."""

    def __init__(self, inner: nn.Module, mask: Tensor) -> None:
        super().__init__()
        self.inner, self.mask = inner, mask

    def forward(self, values: Tensor) -> Tensor:
        return self.inner(values * self.mask)


@dataclass(frozen=True)
class Case:
    """Both networks, with the inputs that each takes, and labels."""

    masked: nn.Module
    by_name: Any
    fixed: nn.Module
    values: Tensor
    y: Tensor


def case(batch: int = 4) -> Case:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    values = torch.randn(batch, 5, dtype=torch.float64, generator=generator)
    mask = (torch.rand(batch, 5, generator=generator) < 0.7).double()
    inputs = NamedInputs({"mask": mask, "values": values})
    return Case(Masked(inner), inputs, Fixed(inner, mask), values, torch.arange(batch) % 3)
