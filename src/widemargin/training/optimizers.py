"""Optimizers as frozen values: called with parameters, each returns a new torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from widemargin import optim
from widemargin.checks import check_number
from widemargin.optim.base import ClosureOptimizer

MakesOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""One of the values below, `functools.partial(torch.optim.SGD, lr=…)`, or any function that does the same."""


@dataclass(frozen=True, kw_only=True)
class SGD:
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
class AdamW:
    """AdamW (Loshchilov & Hutter 2019), which without a weight decay is Adam (Kingma & Ba 2015).

    The default weight decay is 0, not the 0.01 of `torch.optim.AdamW`.
    """

    lr: float | int = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float | int = 1e-8
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        _check(self, "lr", "eps", "weight_decay")

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`torch.optim.AdamW` of these parameters."""
        return torch.optim.AdamW(parameters, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class RMSprop:
    """RMSProp, w ← w − lr·∇/(√v + ε) with v ← alpha·v + (1 − alpha)·∇² (elsayed §4.2: no momentum on MNIST).

    `eps_inside_sqrt` divides by √(v + ε) instead, as TensorFlow does.
    """

    lr: float | int = 1e-2
    alpha: float | int = 0.99
    momentum: float | int = 0.0
    eps: float | int = 1e-8
    weight_decay: float | int = 0.0
    eps_inside_sqrt: bool = False

    def __post_init__(self) -> None:
        _check(self, "lr", "alpha", "momentum", "eps", "weight_decay")

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`torch.optim.RMSprop` of these parameters, or the same with ε inside the root."""
        kind: Callable[..., torch.optim.Optimizer] = torch.optim.RMSprop
        return (_RMSpropInsideSqrt if self.eps_inside_sqrt else kind)(
            parameters,
            lr=self.lr,
            alpha=self.alpha,
            momentum=self.momentum,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class NeroOptimizer:
    """Nero: every row of every weight moves on the sphere of centred unit vectors (farhang §3.2); see `optim.Nero`."""

    lr: float | int = 0.01
    beta: float | int = 0.999

    def __post_init__(self) -> None:
        _check(self, "lr")
        check_number("beta", self.beta, least=0.0, below=1.0)

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """`optim.Nero` of these parameters."""
        return optim.Nero(parameters, lr=self.lr, beta=self.beta)


class _RMSpropInsideSqrt(ClosureOptimizer):
    """v ← alpha·v + (1 − alpha)·∇², m ← momentum·m + ∇/√(v + ε), w ← w − lr·m."""

    def __init__(self, parameters: Iterable[nn.Parameter], **settings: float) -> None:
        super().__init__(parameters, settings)

    def update(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state: dict[str, Tensor] = self.state[parameter]
                if not state:
                    state["square_avg"] = torch.zeros_like(parameter)
                    if group["momentum"]:
                        state["momentum_buffer"] = torch.zeros_like(parameter)
                gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
                square = state["square_avg"]
                square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
                size = square.add(group["eps"]).sqrt_()
                if group["momentum"]:
                    buffer = state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(gradient, size)
                    parameter.add_(buffer, alpha=-group["lr"])
                else:
                    parameter.addcdiv_(gradient, size, value=-group["lr"])


def _check(value: object, *names: str) -> None:
    for name in names:
        check_number(name, getattr(value, name), least=0.0)
