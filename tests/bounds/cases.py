"""Networks of the bounds' tests, in float64."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn


class Twice(nn.Module):
    """√2·ReLU, as farhang's networks have it."""

    lipschitz = math.sqrt(2)

    def forward(self, x: Tensor) -> Tensor:
        return math.sqrt(2) * x.relu()


def mlp(*widths: int, bias: bool = False, activation: type[nn.Module] = nn.ReLU, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layers += [activation()] * bool(i) + [nn.Linear(inputs, outputs, bias=bias)]
    return nn.Sequential(*layers).double()


def cnn(*, bias: bool = False, pool: nn.Module | None = None, seed: int = 0) -> nn.Sequential:
    """Two convolutions on 2×6×6, one with stride and dilation, and two linear layers; 3 classes."""
    torch.manual_seed(seed)
    body = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, bias=bias),
        nn.ReLU(),
        pool if pool is not None else nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, stride=2, padding=1, dilation=2, groups=1, bias=bias),
        nn.ReLU(),
        nn.Flatten(),
    )
    width = body(torch.zeros(1, 2, 6, 6)).shape[1]
    head = (nn.Linear(width, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3, bias=bias))
    return nn.Sequential(*body, *head).double()


def samples(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def matrices(model: nn.Sequential) -> list[Tensor]:
    return [layer.weight.detach() for layer in model if isinstance(layer, nn.Linear)]
