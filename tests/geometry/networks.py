"""Networks of every supported layer, with inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
    return nn.Sequential(
        *(
            nn.Conv2d(2, 4, 3, padding=1),
            statistics(nn.BatchNorm2d(4)),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        ),
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


class Residual(nn.Module):
    """Residual sums and functional activations of vectors."""

    def __init__(self, inputs: int = 5, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, classes)
        self.second, self.third = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x))
        h = h + self.second(h).relu()
        return self.last(torch.relu(h - 0.5 * self.third(F.leaky_relu(h, 0.1))))


class ResidualImages(nn.Module):
    """Normalized images, BatchNorm, a strided block with a pooled shortcut, functional pools, the mean over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), statistics(nn.BatchNorm2d(4))
        self.inner = nn.Conv2d(4, 4, 3, padding=1, stride=2)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm(self.conv((x - 0.1) / 0.5)), inplace=True)
        h = F.relu(self.inner(h)) + F.avg_pool2d(h, 2)
        return self.last(F.max_pool2d(h, 2, stride=1).mean(dim=(2, 3)))


class Normalized(nn.Module):
    """Group, layer, instance and root mean square norms between layers, one of them around a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.group = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.inner, self.instance = nn.Conv2d(4, 4, 3, padding=1), nn.InstanceNorm2d(4, affine=True)
        self.layer, self.rms = nn.LayerNorm(4), nn.RMSNorm(4, eps=1e-3)
        self.last = nn.Linear(4, 3)
        for module in (self.group, self.instance, self.layer, self.rms):
            nn.init.uniform_(module.weight, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.group(self.conv(x)))
        h = F.relu(h + self.instance(self.inner(h)))
        h = self.layer(h.permute(0, 2, 3, 1)).flatten(1, 2)
        return self.last(self.rms(h).sum(1))


def statistics(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """`norm` with running statistics of some training."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    return norm


def as_chain(model: Residual) -> nn.Sequential:
    """The same function as a chain: h + f(h) is (I, f)(h) followed by (I, I), and h = relu(h) − relu(−h)."""
    one, other = model.second, model.third
    width = len(one.weight)
    eye = torch.eye(width, dtype=one.weight.dtype)
    layers: list[nn.Module] = [nn.Linear(model.first.in_features, width), nn.ReLU()]
    layers += [nn.Linear(width, 2 * width), nn.ReLU()]  # (h, W1 h + b1), h ≥ 0
    layers += [nn.Linear(2 * width, 2 * width), nn.ReLU()]  # (g, 0.9·g): g = h + relu(W1 h + b1) ≥ 0
    layers += [nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, model.last.out_features)]
    chain = nn.Sequential(*layers).to(one.weight.dtype)
    weights = [module for module in chain if isinstance(module, nn.Linear)]
    zero = torch.zeros(width, dtype=one.weight.dtype)
    values = [
        (model.first.weight, model.first.bias),
        (torch.cat((eye, one.weight)), torch.cat((zero, one.bias))),
        (torch.cat((torch.cat((eye, eye), dim=1), 0.9 * torch.cat((eye, eye), dim=1))), torch.cat((zero, zero))),
        # leaky(g) = g for g ≥ 0: h − W2 g/2
        (torch.cat((eye - 0.5 * other.weight, 0 * eye), dim=1), -0.5 * other.bias),
        (model.last.weight, model.last.bias),
    ]
    with torch.no_grad():
        for layer, (weight, bias) in zip(weights, values, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    return chain


GRAPHS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (5,)),
    "images": (ResidualImages, (2, 6, 6)),
    "norms": (Normalized, (1, 4, 4)),
}
"""Networks that are no chains."""

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
    make, shape = {**CASES, **GRAPHS}[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(), torch.randn(batch, *shape)


def double(model: nn.Module) -> nn.Module:
    """The same network as PyTorch runs it in float64: the oracle of values and of autograd Jacobians."""
    return copy.deepcopy(model).double().eval()
