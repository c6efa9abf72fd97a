"""A small network for any table or images, which standardises its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

WIDTH = 128


class Standardize(nn.Module):
    """(x − mean)/deviation: of each feature of a table, of each channel of images."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        dims = (0, 2, 3) if x.ndim == 4 else (0,)
        self.register_buffer("mean", x.mean(dim=dims, keepdim=True).detach().cpu())
        deviation = x.std(dim=dims, keepdim=True, correction=0).detach().cpu()
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def forward(self, x: Tensor) -> Tensor:
        """The standardised inputs."""
        return (x - self.mean) / self.deviation


def default_network(x: Tensor, classes: int) -> Callable[[], nn.Module]:
    """A function that builds a network for inputs like `x`.

    Images [n, channels, height, width] have two 3×3 convolutions with pools and a hidden layer, all others two hidden
    layers. Tokens have no default, since their number is not known.
    """
    if not x.is_floating_point():
        raise TypeError(f"build is None, but x has dtype {x.dtype}: pass a function that builds a network for it")
    return lambda: nn.Sequential(Standardize(x), *(_images(x, classes) if x.ndim == 4 else _table(x, classes)))


def _images(x: Tensor, classes: int) -> list[nn.Module]:
    channels, smallest = x.shape[1], min(x.shape[2:])
    layers: list[nn.Module] = []
    for width in (WIDTH // 4, WIDTH // 2):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        if smallest >= 4:
            layers.append(nn.MaxPool2d(2))
            smallest //= 2
        channels = width
    side = min(smallest, 7)
    layers += [nn.AdaptiveAvgPool2d(side), nn.Flatten(), nn.Linear(channels * side**2, WIDTH), nn.ReLU()]
    return [*layers, nn.Linear(WIDTH, classes)]


def _table(x: Tensor, classes: int) -> list[nn.Module]:
    inputs = x[0].numel()
    hidden = [nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return [nn.Flatten(), *hidden, nn.Linear(WIDTH, classes)]
