"""The optimizers of `training`, for stacked parameters: the same steps, with a learning rate for every network."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from widemargin.optim.nero import advance_
from widemargin.optim.projections import to_centred_unit_rows
from widemargin.training.optimizers import Adam, Nero, RmsProp, Sgd


class StackedOptimizer(abc.ABC):
    """Moves `parameters` `[networks, ...]` along their gradients; `state` holds tensors of the same first dimension.

    The number of the step and the factor of the learning rate are numbers, or, for moves that a CUDA graph repeats,
    tensors in which the graph finds those of each step.
    """

    def __init__(self, value: Any, rates: Sequence[float], device: torch.device) -> None:
        self.value = value
        self.rates = torch.tensor(rates, dtype=torch.float64, device=device)
        self.steps: int | Tensor = 0
        self.factor: float | Tensor = 1.0
        self.state: dict[str, dict[str, Tensor]] = {}
        self._same = rates[0] if len(set(rates)) == 1 else None

    def start(self, parameters: Mapping[str, Tensor]) -> None:  # noqa: B027 (most have nothing to do)
        """What is done before the first step."""

    def step(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None], factor: float) -> None:
        """One step, with every learning rate times `factor`; parameters without a gradient are left alone."""
        self.steps, self.factor = self.steps + 1, factor
        self.move_all(parameters, gradients)

    @torch.no_grad()
    def move_all(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]) -> None:
        """What a step does, once its number and its factor are known."""
        for name, parameter in parameters.items():
            gradient = gradients[name]
            if gradient is not None:
                self.move(parameter, gradient, self._rate(parameter), self.state.setdefault(name, {}))

    def keep(self, index: Tensor) -> None:
        """Go on with the networks at `index` alone."""
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


class _Sgd(StackedOptimizer):
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
        _subtract(parameter, gradient, rate)


class _Adam(StackedOptimizer):
    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        first, second = self.value.betas
        if not state:
            state["first"], state["second"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        if self.value.weight_decay:
            parameter.mul_(1 - rate * self.value.weight_decay)
        state["first"].lerp_(gradient, 1 - first)
        state["second"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        size = (state["second"].sqrt() / (1 - second**self.steps) ** 0.5).add_(self.value.eps)
        _subtract_quotient(parameter, state["first"], size, rate / (1 - first**self.steps))


class _RmsProp(StackedOptimizer):
    def move(self, parameter: Tensor, gradient: Tensor, rate: float | Tensor, state: dict[str, Tensor]) -> None:
        if not state:
            state["square"] = torch.zeros_like(parameter)
            if self.value.momentum:
                state["buffer"] = torch.zeros_like(parameter)
        if self.value.weight_decay:
            gradient = gradient.add(parameter, alpha=self.value.weight_decay)
        state["square"].mul_(self.value.alpha).addcmul_(gradient, gradient, value=1 - self.value.alpha)
        size = state["square"].sqrt().add_(self.value.eps)
        if self.value.momentum:
            _subtract(parameter, state["buffer"].mul_(self.value.momentum).addcdiv_(gradient, size), rate)
        else:
            _subtract_quotient(parameter, gradient, size, rate)


class _Nero(StackedOptimizer):
    """Nero's rule works row by row, so the rows of all networks are the rows of one tall matrix."""

    def __init__(self, value: Nero, rates: Sequence[float], device: torch.device) -> None:
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
            step=self.steps,
            constrained=_is_constrained(parameter),
        )


def _subtract(parameter: Tensor, gradient: Tensor, rate: float | Tensor) -> None:
    if isinstance(rate, Tensor):
        parameter.addcmul_(gradient, rate, value=-1)
    else:
        parameter.add_(gradient, alpha=-rate)


def _subtract_quotient(parameter: Tensor, above: Tensor, below: Tensor, rate: float | Tensor) -> None:
    if isinstance(rate, Tensor):
        parameter.addcmul_(above / below, rate, value=-1)
    else:
        parameter.addcdiv_(above, below, value=-rate)


def _is_constrained(parameter: Tensor) -> bool:
    return parameter.ndim > 2 and parameter[0, 0].numel() > 1


def _rows(parameter: Tensor) -> Tensor:
    return parameter.reshape(-1, 1) if parameter.ndim <= 2 else parameter.flatten(0, 1).flatten(1)


_KINDS: dict[type, type[StackedOptimizer]] = {Sgd: _Sgd, Adam: _Adam, RmsProp: _RmsProp, Nero: _Nero}


def check_optimizers(values: Sequence[Any]) -> None:
    """Raise unless these are optimizers of one kind that a population knows, which differ in their learning rates."""
    for value in values:
        if type(value) not in _KINDS:
            raise TypeError(f"optimizer is {value!r}, expected training.Sgd, Adam, RmsProp or Nero for a population")
        if dataclasses.replace(value, lr=1.0) != dataclasses.replace(values[0], lr=1.0):
            raise ValueError(f"optimizer has {values[0]!r} and {value!r}, expected to differ in lr alone")


def stacked(values: Sequence[Any], device: torch.device) -> StackedOptimizer:
    """The stacked optimizer of these values, one a network, which may differ in their learning rates."""
    return _KINDS[type(values[0])](values[0], [float(value.lr) for value in values], device)
