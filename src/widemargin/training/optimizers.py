"""Optimizers as frozen values: called with parameters, each returns a new torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from widemargin import optim
from widemargin.checks import check_flag, check_number, check_numbers, check_type
from widemargin.optim.base import ClosureOptimizer

MakesOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""One of the values below, `functools.partial(torch.optim.SGD, lr=…)`, or any function that does the same."""


def optimizer_of(make: MakesOptimizer, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that `make` returns for the trained parameters of `model`; raises where it is none.

    Nero gets them as groups with the axis of their rows, which is another one for transposed convolutions.
    """
    parameters: Any = [p for p in model.parameters() if p.requires_grad]
    if isinstance(make, NeroOptimizer) or getattr(make, "func", make) is optim.Nero:
        parts = [
            {**group, "params": [p for p in group["params"] if p.requires_grad]} for group in optim.param_groups(model)
        ]
        parameters = [group for group in parts if group["params"]]
    made = make(parameters)
    check_type("optimizer", made, torch.optim.Optimizer, "a function that returns a torch optimizer")
    return made


class OptimizerValue:
    """Base of the values: a call makes an optimizer of the class `kind` with the fields as its settings."""

    kind: ClassVar[Callable[..., torch.optim.Optimizer]]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("nesterov", "eps_inside_sqrt"):
                check_flag(name, value)
            elif name != "betas":
                check_number(name, value, least=0.0)

    def __call__(self, parameters: ParamsT) -> torch.optim.Optimizer:
        """A new optimizer of these parameters, or groups of them."""
        return type(self).kind(parameters, **vars(self))


@dataclass(frozen=True, kw_only=True)
class SGD(OptimizerValue):
    """Stochastic gradient descent, w ← w − lr·v with v ← momentum·v + ∇ (sokolic §V: momentum 0.9)."""

    kind = torch.optim.SGD
    lr: float | int
    momentum: float | int = 0.0
    nesterov: bool = False
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum > 0:
            raise ValueError(f"nesterov is True, but momentum is {self.momentum}, expected momentum > 0")


@dataclass(frozen=True, kw_only=True)
class AdamW(OptimizerValue):
    """AdamW (Loshchilov & Hutter 2019), which without a weight decay is Adam (Kingma & Ba 2015).

    The default weight decay is 0, not the 0.01 of `torch.optim.AdamW`.
    """

    kind = torch.optim.AdamW
    lr: float | int = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float | int = 1e-8
    weight_decay: float | int = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("betas", self.betas, least=0.0, below=1.0)
        if len(self.betas) != 2:
            raise ValueError(f"betas is {self.betas}, expected two numbers")


@dataclass(frozen=True, kw_only=True)
class NeroOptimizer(OptimizerValue):
    """Nero: every row of every weight moves on the sphere of centred unit vectors (farhang §3.2); see `optim.Nero`."""

    kind = optim.Nero
    lr: float | int = 0.01
    beta: float | int = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("beta", self.beta, least=0.0, below=1.0)


class _RMSpropInsideSqrt(ClosureOptimizer):
    def __init__(self, parameters: Iterable[nn.Parameter], **settings: float) -> None:
        super().__init__(parameters, settings)

    def update(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            settings = {name: value for name, value in group.items() if name != "params"}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    rmsprop_(parameter, parameter.grad, self.state[parameter], **settings, eps_inside_sqrt=True)


def _rmsprop(parameters: Iterable[nn.Parameter], *, eps_inside_sqrt: bool, **settings: float) -> torch.optim.Optimizer:
    kind: Callable[..., torch.optim.Optimizer] = _RMSpropInsideSqrt if eps_inside_sqrt else torch.optim.RMSprop
    return kind(parameters, **settings)


@dataclass(frozen=True, kw_only=True)
class RMSprop(OptimizerValue):
    """RMSProp, w ← w − lr·∇/(√v + ε) with v ← alpha·v + (1 − alpha)·∇² (elsayed §4.2: no momentum on MNIST).

    `eps_inside_sqrt` divides by √(v + ε) instead, as TensorFlow does.
    """

    kind = _rmsprop
    lr: float | int = 1e-2
    alpha: float | int = 0.99
    momentum: float | int = 0.0
    eps: float | int = 1e-8
    weight_decay: float | int = 0.0
    eps_inside_sqrt: bool = False


def rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    state: dict[str, Tensor],
    *,
    lr: float | Tensor,
    alpha: float,
    momentum: float,
    eps: float,
    weight_decay: float,
    eps_inside_sqrt: bool,
) -> None:
    """v ← alpha·v + (1 − alpha)·∇², m ← momentum·m + ∇/√(v + ε) or ∇/(√v + ε), w ← w − lr·m."""
    if not state:
        state["square_avg"] = torch.zeros_like(parameter)
        if momentum:
            state["momentum_buffer"] = torch.zeros_like(parameter)
    if weight_decay:
        gradient = gradient.add(parameter, alpha=weight_decay)
    square = state["square_avg"].mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
    size = square.add(eps).sqrt_() if eps_inside_sqrt else square.sqrt().add_(eps)
    if momentum:
        subtract_(parameter, state["momentum_buffer"].mul_(momentum).addcdiv_(gradient, size), lr)
    else:
        subtract_quotient_(parameter, gradient, size, lr)


def subtract_(parameter: Tensor, gradient: Tensor, lr: float | Tensor) -> None:
    """`parameter` − lr·`gradient`, in place."""
    if isinstance(lr, Tensor):
        parameter.addcmul_(gradient, lr, value=-1)
    else:
        parameter.add_(gradient, alpha=-lr)


def subtract_quotient_(parameter: Tensor, above: Tensor, below: Tensor, lr: float | Tensor) -> None:
    """`parameter` − lr·`above`/`below`, in place."""
    if isinstance(lr, Tensor):
        parameter.addcmul_(above / below, lr, value=-1)
    else:
        parameter.addcdiv_(above, below, value=-lr)
