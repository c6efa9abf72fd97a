"""The base class of optimizers: a step with an optional closure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import overload

import torch


class ClosureOptimizer(torch.optim.Optimizer, ABC):
    """An optimizer whose step is `evaluate` and then `update`."""

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of every parameter that has a gradient; `closure` computes the loss and its gradients first."""
        loss = self.evaluate(closure)
        with torch.no_grad():
            self.update()
        return loss

    def evaluate(self, closure: Callable[[], float] | None) -> float | None:
        """The loss by `closure`, if there is one."""
        with torch.enable_grad():
            return None if closure is None else closure()

    @abstractmethod
    def update(self) -> None:
        """Move the parameters, without gradients."""
