"""Networks with their planes, and points drawn inside polygons."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from widemargin import geometry
from widemargin.geometry.polygons import Polygons
from widemargin.models import farhang

BOX = (-2.0, 2.0, -1.5, 2.5)


def spread(model: nn.Sequential) -> nn.Sequential:
    """Weights large enough for many cells in the box."""
    for layer in model:
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.normal_(layer.weight, std=(2 / layer.weight[0].numel()) ** 0.5)
            if layer.bias is not None:
                nn.init.normal_(layer.bias, std=0.4)
    return model


def relu(outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, outputs))


def leaky() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 10), nn.LeakyReLU(0.3), nn.Linear(10, 10), nn.LeakyReLU(0.1), nn.Linear(10, 4))


def scaled() -> nn.Sequential:
    """No biases: all lines of the first layer meet in the origin."""
    layers = (nn.Linear(2, 8, bias=False), farhang.ScaledReLU(), nn.Linear(8, 8, bias=False), farhang.ScaledReLU())
    return nn.Sequential(*layers, nn.Linear(8, 1, bias=False))


def pooled() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(3, 2, padding=1), nn.ReLU()),
        *(nn.Conv2d(2, 2, 2), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(2, 3)),
    )


CASES: dict[str, tuple[Callable[[], nn.Sequential], tuple[int, ...]]] = {
    "relu": (relu, (2,)),
    "binary": (lambda: relu(1), (2,)),
    "leaky": (leaky, (2,)),
    "scaled": (scaled, (2,)),
    "pooled": (pooled, (1, 4, 4)),
}


@cache
def build(name: str) -> tuple[nn.Sequential, geometry.Slice]:
    """The network in float64, and its slice: the plane itself, or for images a skew plane through a random origin."""
    make, shape = CASES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = spread(make()).double()
        if shape == (2,):
            origin, u, v = torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        else:
            origin, u, v = torch.randn(3, *shape).unbind()
        found = geometry.slice2d(model, origin, u, v, BOX)
    assert isinstance(found, geometry.Slice)
    return model, found


def inside(polygons: Polygons, seed: int = 0) -> Tensor:
    """A random point inside each polygon."""
    draw = torch.Generator().manual_seed(seed)
    real = torch.arange(polygons.corners.shape[1]) < polygons.counts[:, None]
    weights = -torch.rand(real.shape, generator=draw, dtype=torch.float64).log() * real
    return (weights[..., None] * polygons.corners).sum(dim=1) / weights.sum(dim=1, keepdim=True)


def codes(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([part.flatten(1).long() for part in geometry.pattern(model, x).values()], dim=1)
