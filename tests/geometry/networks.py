"""Networks of every supported layer, with inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from widemargin.models import farhang


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4))


def leaky() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 20), nn.LeakyReLU(0.2), nn.Linear(20, 20), nn.LeakyReLU(-0.3), nn.Linear(20, 3))


def parametric() -> nn.Sequential:
    """PReLUs, and a pool whose windows reach over the edge."""
    first, second = nn.PReLU(init=-0.4), nn.PReLU(init=1.3)
    pool = nn.MaxPool2d(2, ceil_mode=True)
    return nn.Sequential(nn.Conv2d(1, 3, 2), first, pool, nn.Flatten(), nn.Linear(12, 8), second, nn.Linear(8, 3))


def scaled() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 20, bias=False), farhang.ScaledReLU(), nn.Linear(20, 1, bias=False))


def cnn() -> nn.Sequential:
    """Overlapping and padded max-pools, average pools, strides, BatchNorm with statistics, dropout."""
    norm = nn.BatchNorm2d(4)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), norm, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)),
        *(nn.Conv2d(4, 5, 2, stride=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2, 1), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Dropout(), nn.Linear(5, 3)),
    )


def signals() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(1, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.AvgPool1d(2, 1), nn.Flatten(), nn.Linear(16, 3)
    )


class Own(nn.Module):
    """A module of one's own that changes shapes by itself and runs its activation twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x.view(len(x), -1)))
        return self.last(self.act(self.second(x)))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (5,)),
    "leaky": (leaky, (5,)),
    "parametric": (parametric, (1, 4, 4)),
    "scaled": (scaled, (5,)),
    "cnn": (cnn, (2, 7, 7)),
    "signals": (signals, (1, 12)),
    "own": (Own, (2, 3)),
}


def build(name: str, *, batch: int = 6, seed: int = 0) -> tuple[nn.Module, Tensor]:
    make, shape = CASES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(), torch.randn(batch, *shape)


def double(model: nn.Module) -> nn.Module:
    """The same network as PyTorch runs it in float64: the oracle of values and of autograd Jacobians."""
    return copy.deepcopy(model).double().eval()
