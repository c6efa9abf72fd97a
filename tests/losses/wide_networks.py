"""Small networks in float64 and training mode, with a batch for each, on which `WideMargin` is tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import zoo


class Scalar(nn.Sequential):
    """A binary network with scores `[batch]`."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = super().forward(x)
        return scores.squeeze(1)


class Lstm(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, batch_first=True, dropout=dropout)
        self.output = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.lstm(x)[0][:, -1])
        return scores


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=dropout, batch_first=True)
        self.output = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.attention(x, x, x, need_weights=False)[0].mean(dim=1))
        return scores


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def cnn(*norms: nn.Module, dropout: float = 0.0) -> nn.Module:
    first, second = norms or (nn.Identity(), nn.Identity())
    layers = [nn.Conv2d(2, 4, 3), first, nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1), second, nn.Tanh()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(dropout), nn.Linear(16, 3))


def dropout_mlp() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def flat_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def instance_norm() -> nn.Module:
    return cnn(nn.InstanceNorm2d(4, track_running_stats=True), nn.InstanceNorm2d(4, affine=True))


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    labels: int = 3
    tokens: bool = False

    def network(self) -> nn.Module:
        """Always the same weights; scales and shifts of norms that are not 1 and 0."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = self.build().double().train()
            for module in network.modules():
                if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm)) and module.affine:
                    nn.init.uniform_(module.weight, 0.5, 1.5)
                    nn.init.normal_(module.bias)
        return network

    def batch(self, size: int = 11, seed: int = 1) -> tuple[Tensor, Tensor]:
        """Classes that are separated, but not clearly: with one cloud the term of `WideMargin` would vanish."""
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(self.labels, (size,), generator=generator)
        if self.tokens:
            common = torch.randint(11, (self.labels, *self.shape), generator=generator)[y]
            x = torch.where(
                torch.rand(common.shape, generator=generator) < 0.5,
                common,
                torch.randint(11, common.shape, generator=generator),
            )
        else:
            centers = torch.randn(self.labels, *self.shape, generator=generator, dtype=torch.float64)
            x = centers[y] + torch.randn(size, *self.shape, generator=generator, dtype=torch.float64)
        return x, y if self.labels > 2 else (2 * y - 1).double()


FLAT, IMAGE = (5,), (2, 6, 6)

CASES: dict[str, Case] = {
    "mlp": Case(mlp, FLAT),
    "cnn": Case(cnn, IMAGE),
    "batch norm": Case(lambda: cnn(nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)), IMAGE),
    "batch norm, no running statistics": Case(
        lambda: cnn(nn.BatchNorm2d(4, track_running_stats=False), nn.BatchNorm2d(4, momentum=None)), IMAGE
    ),
    "flat batch norm": Case(flat_norm, FLAT),
    "group norm": Case(lambda: cnn(nn.GroupNorm(2, 4), nn.GroupNorm(1, 4)), IMAGE),
    "instance norm": Case(instance_norm, IMAGE),
    "dropout": Case(dropout_mlp, FLAT),
    "batch norm and dropout": Case(lambda: cnn(nn.BatchNorm2d(4), nn.BatchNorm2d(4), dropout=0.5), IMAGE),
    "binary": Case(lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1)), FLAT, 2),
    "binary, scores [batch]": Case(lambda: Scalar(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1)), FLAT, 2),
    "tokens": Case(zoo.BagOfWords, (7,), tokens=True),
    "token transformer": Case(zoo.TokenTransformer, (7,), tokens=True),
    "lstm": Case(Lstm, (4, 5)),
    "attention": Case(Attention, (4, 6)),
}
