"""Optimizers as frozen values: called with parameters, each gives a fresh torch optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from widemargin import optim

MakesOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""One of the values below, or any function of your own that does the same."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent, w ← w − lr·v with v ← momentum·v + ∇ (sokolic §V: momentum 0.9)."""

    lr: float | int
    momentum: float | int = 0.0
    nesterov: bool = False
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        _check(self, "lr", "momentum", "weight_decay")
        if self.nesterov and not self.momentum > 0:
            raise ValueError(f"nesterov is True, but momentum is {self.momentum}, expected momentum > 0")

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`torch.optim.SGD` of these parameters."""
        return torch.optim.SGD(
            parameters,
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam (Kingma & Ba 2015); with a weight decay, the decoupled one of AdamW."""

    lr: float | int = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float | int = 1e-8
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        _check(self, "lr", "eps", "weight_decay")

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`torch.optim.AdamW` of these parameters, which is Adam where the weight decay is 0."""
        return torch.optim.AdamW(parameters, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class RmsProp:
    """RMSProp (elsayed §4.2: without momentum for the margin models of MNIST)."""

    lr: float | int = 1e-2
    alpha: float | int = 0.99
    momentum: float | int = 0.0
    eps: float | int = 1e-8
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        _check(self, "lr", "alpha", "momentum", "eps", "weight_decay")

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`torch.optim.RMSprop` of these parameters."""
        return torch.optim.RMSprop(
            parameters,
            lr=self.lr,
            alpha=self.alpha,
            momentum=self.momentum,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class Nero:
    """Nero: every row of every weight moves on the sphere of centred unit vectors (farhang §3.2); see `optim.Nero`."""

    lr: float | int = 0.01
    beta: float | int = 0.999

    def __post_init__(self) -> None:
        _check(self, "lr", "beta")
        if not self.beta < 1:
            raise ValueError(f"beta is {self.beta!r}, expected a number in [0, 1)")

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`optim.Nero` of these parameters."""
        return optim.Nero(parameters, lr=self.lr, beta=self.beta)


def _check(value: object, *names: str) -> None:
    for name in names:
        number = getattr(value, name)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
            raise ValueError(f"{name} is {number!r}, expected a number >= 0")
