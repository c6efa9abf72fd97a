"""The optimizers of `training` for stacked parameters: the same steps, with a learning rate for every network."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from widemargin import optim
from widemargin.optim.nero import advance_
from widemargin.optim.projections import to_centred_unit_rows
from widemargin.training import optimizers
from widemargin.training.optimizers import SGD, AdamW, MakesOptimizer, NeroOptimizer, RMSprop

Value: TypeAlias = SGD | AdamW | RMSprop | NeroOptimizer


class StackedOptimizer(abc.ABC):
    """Moves `parameters` `[networks, ...]` along their gradients; `state` holds tensors of the same first dimension.

    The step number and the factor of the learning rate are numbers, or tensors that a CUDA graph reads in each step.
    """

    def __init__(self, value: Any, rates: Sequence[float], device: torch.device) -> None:
        self.value = value
        self.rates = torch.tensor(rates, dtype=torch.float64, device=device)
        self.number: int | Tensor = 0
        self.factor: float | Tensor = 1.0
        self.state: dict[str, dict[str, Tensor]] = {}
        self._same = rates[0] if len(set(rates)) == 1 else None

    def start(self, parameters: Mapping[str, Tensor]) -> None:  # noqa: B027 (most have nothing to do)
        """Prepare the first step."""

    @torch.no_grad()
    def step(self, parameters: Mapping[str, Tensor], number: int | Tensor, factor: float | Tensor) -> None:
        """Step `number` with every learning rate times `factor`; parameters without a gradient are left alone."""
        self.number, self.factor = number, factor
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                self.move(parameter, parameter.grad, self._rate(parameter), self.state.setdefault(name, {}))

    def keep(self, index: Tensor) -> None:
        """Keep the networks at `index` alone."""
        self.rates = self.rates[index]
        self.state = {name: {k: v[index] for k, v in state.items()} for name, state in self.state.items()}

    @abc.abstractmethod
    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        """One step of one parameter, in place."""

    def _rate(self, parameter: Tensor) -> float | Tensor:
        """One number where all networks have the same, which is faster."""
        if self._same is not None:
            rate = self._same * self.factor
            return rate.to(parameter.dtype) if isinstance(rate, Tensor) else rate
        return (self.rates * self.factor).to(parameter.dtype).view(-1, *[1] * (parameter.ndim - 1))


class _StackedSGD(StackedOptimizer):
    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        if self.value.weight_decay:
            gradient = gradient.add(parameter, alpha=self.value.weight_decay)
        if self.value.momentum:
            if "buffer" in state:
                state["buffer"].mul_(self.value.momentum).add_(gradient)
            else:
                state["buffer"] = gradient.clone()
            buffer = state["buffer"]
            gradient = gradient.add(buffer, alpha=self.value.momentum) if self.value.nesterov else buffer
        optimizers.subtract_(parameter, gradient, rate)


class _StackedAdamW(StackedOptimizer):
    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        first, second = self.value.betas
        if not state:
            state["first"], state["second"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        if self.value.weight_decay:
            parameter.mul_(1 - rate * self.value.weight_decay)
        state["first"].lerp_(gradient, 1 - first)
        state["second"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        size = (state["second"].sqrt() / (1 - second**self.number) ** 0.5).add_(self.value.eps)
        optimizers.subtract_quotient_(parameter, state["first"], size, rate / (1 - first**self.number))


class _StackedRMSprop(StackedOptimizer):
    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        optimizers.rmsprop_(parameter, gradient, state, **{**vars(self.value), "lr": rate})


class _StackedNero(StackedOptimizer):
    """Nero's rule works row by row, so the rows of all networks are the rows of one tall matrix."""

    def __init__(self, value: NeroOptimizer, rates: Sequence[float], device: torch.device) -> None:
        super().__init__(value, rates, device)
        self.largest = max(rates)

    @torch.no_grad()
    def start(self, parameters: Mapping[str, Tensor]) -> None:
        for name, parameter in parameters.items():
            rows = _rows(parameter)
            if _is_constrained(parameter):
                rows.copy_(to_centred_unit_rows(rows))
            lengths = torch.linalg.vector_norm(rows, dim=1).view(len(parameter), -1)
            scale = lengths.double().mean(dim=1)
            scale = torch.where(scale == 0, torch.full_like(scale, 0.01), scale)
            self.state[name] = {"v": torch.zeros_like(lengths), "scale": scale}

    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        # The largest rate as one number, from which the rule sees how far rows may move; the others relative to it.
        scale = state["scale"] if self._same is not None else state["scale"] * (self.rates / self.largest)
        advance_(
            _rows(parameter),
            _rows(gradient),
            state["v"].view(-1),
            scale.to(parameter.dtype)[:, None].expand_as(state["v"]).reshape(-1),
            lr=rate if self._same is not None else self.largest * self.factor,
            beta=float(self.value.beta),
            step=self.number,
            constrained=_is_constrained(parameter),
        )


def _is_constrained(parameter: Tensor) -> bool:
    return parameter.ndim > 2 and parameter[0, 0].numel() > 1


def _rows(parameter: Tensor) -> Tensor:
    return parameter.reshape(-1, 1) if parameter.ndim <= 2 else parameter.flatten(0, 1).flatten(1)


_KINDS: dict[type, type[StackedOptimizer]] = {
    SGD: _StackedSGD,
    AdamW: _StackedAdamW,
    RMSprop: _StackedRMSprop,
    NeroOptimizer: _StackedNero,
}
_VALUES: dict[object, type] = {torch.optim.Adam: AdamW, torch.optim.RMSprop: RMSprop}
_VALUES |= {value.kind: value for value in (SGD, AdamW, NeroOptimizer)}
_SAME = ("foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay")
"""Settings of torch's optimizers that do not change their steps, or that are known from their class."""


def stackable(given: Sequence[MakesOptimizer], network: nn.Module) -> list[Value]:
    """Values of the `given` optimizers, of one kind that a population knows, which differ in `lr` alone.

    Raises where they can't train networks such as `network`.
    """
    values = [_value(optimizer) for optimizer in given]
    if isinstance(values[0], NeroOptimizer) and any(group["axis"] for group in optim.param_groups(network)):
        raise ValueError(
            f"optimizer is {values[0]!r}, whose rows are at dim 0 in a population, but a network has a transposed "
            "convolution: train it with fit"
        )
    for value in values:
        if dataclasses.replace(value, lr=1.0) != dataclasses.replace(values[0], lr=1.0):
            raise ValueError(f"optimizer has {values[0]!r} and {value!r}, expected to differ in lr alone")
    return values


def stacked(values: Sequence[Value], device: torch.device) -> StackedOptimizer:
    """The stacked optimizer of these values, one a network, which may differ in their learning rates."""
    return _KINDS[type(values[0])](values[0], [float(value.lr) for value in values], device)


def _value(optimizer: MakesOptimizer) -> Value:
    """`optimizer` itself, or the same value of a torch optimizer's class or a `functools.partial` of it."""
    if isinstance(optimizer, (SGD, AdamW, RMSprop, NeroOptimizer)):
        return optimizer
    maker = functools.partial(optimizer) if isinstance(optimizer, type) else optimizer
    if isinstance(maker, functools.partial) and not maker.args and maker.func in _VALUES:
        own, plain = (maker.func([torch.zeros(1)], **given).defaults for given in (maker.keywords, {"lr": 1.0}))
        kind = _VALUES[maker.func]
        known = {field.name for field in dataclasses.fields(kind)}
        is_plain = all(own[name] == plain[name] for name in own.keys() - known - {*_SAME})
        is_coupled = maker.func is torch.optim.Adam and own["weight_decay"]  # which AdamW's decay is not
        if is_plain and not is_coupled:
            made: Value = kind(**{name: value for name, value in own.items() if name in known})
            return made
    raise TypeError(
        f"optimizer is {optimizer!r}, expected for a population training.SGD, AdamW, RMSprop or Nero, or a "
        "functools.partial of torch's with the same settings"
    )
