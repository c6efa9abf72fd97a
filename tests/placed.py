"""A small network with places, a batch for it, and its distances there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from widemargin import margins, places
from widemargin.modules import scores_of


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 5), nn.Tanh(), nn.Sequential(nn.Linear(5, 5), nn.Tanh()), nn.Linear(5, 3)
    ).double()


X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0, 1, 2])


def distances(network: nn.Module, at: places.Places = ("input",), x: Tensor = X, **how: Any) -> dict[str, Tensor]:
    with places.watch(network, at) as zeros:
        scores = scores_of(network(x))
    return margins.distance(scores, Y[: len(x)], at=zeros, **how)
