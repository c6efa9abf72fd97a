"""Learning-rate schedules as frozen values: the factor of the optimizer's own learning rate.

A schedule is a function of the position alone, so a resumed training does not depend on its past. Positions are in
epochs: `epoch` is 2.5 in the middle of the third epoch, and never reaches `epochs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from widemargin.checks import check_callable, check_number, check_numbers

Schedule: TypeAlias = Callable[[float, float], float]
"""(epoch, epochs) → factor: one of the values below, or any function."""


def factor_of(schedule: Schedule, epoch: float, epochs: float | int) -> float:
    """The factor of the learning rate by `schedule`; raises where it is negative."""
    factor = schedule(epoch, epochs)
    if factor < 0:
        raise ValueError(f"schedule is {schedule!r}, which returned {factor:g}, expected a number >= 0")
    return factor


@dataclass(frozen=True, kw_only=True)
class Constant:
    """1, always."""

    def __call__(self, epoch: float, epochs: float | int) -> float:  # noqa: ARG002
        """1."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Steps:
    """1 at first, and `factors[i]` from epoch `at[i]` on.

    sokolic, §B.2: 0.01, 0.001 and 0.0005 for 34, 33 and 33 epochs are lr 0.01 with
    `Steps(at=(34, 67), factors=(0.1, 0.05))`.
    """

    at: tuple[float | int, ...]
    factors: tuple[float | int, ...]

    def __post_init__(self) -> None:
        check_numbers("at", self.at, least=0.0)
        check_numbers("factors", self.factors, least=0.0)
        if len(self.at) != len(self.factors):
            raise ValueError(f"at has {len(self.at)} entries and factors {len(self.factors)}, expected as many")
        if list(self.at) != sorted(set(self.at)):
            raise ValueError(f"at is {self.at}, expected growing epochs >= 0")

    def __call__(self, epoch: float, epochs: float | int) -> float:  # noqa: ARG002
        """The factor of the last step that was passed."""
        passed = sum(epoch >= start for start in self.at)
        return float(self.factors[passed - 1]) if passed else 1.0


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """factor^⌊epoch/every⌋ (elsayed B.1: 0.9 every 2000 steps; farhang A.1: 0.999 every full-batch step)."""

    factor: float | int
    every: float | int = 1.0

    def __post_init__(self) -> None:
        check_number("factor", self.factor, least=0.0)
        check_number("every", self.every, above=0.0)

    def __call__(self, epoch: float, epochs: float | int) -> float:  # noqa: ARG002
        """factor^⌊epoch/every⌋."""
        return float(self.factor ** math.floor(epoch / self.every + 1e-9))  # a third of an epoch is not exact


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """½(1 + cos(π·epoch/epochs)), from 1 to 0 (Loshchilov & Hutter 2017, without restarts)."""

    def __call__(self, epoch: float, epochs: float | int) -> float:
        """½(1 + cos(π·epoch/epochs))."""
        return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """epoch/`epochs` from 0 to 1 in the first `epochs` epochs, then the schedule `then` over the epochs that are left.

    `then` counts from the end of the warm-up, as in `torch.optim.lr_scheduler.SequentialLR`.
    """

    epochs: float | int
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        check_number("epochs", self.epochs, above=0.0)
        check_callable("then", self.then, "training.Cosine()")

    def __call__(self, epoch: float, epochs: float | int) -> float:
        """The factor of the warm-up, or of the schedule after it."""
        return epoch / self.epochs if epoch < self.epochs else self.then(epoch - self.epochs, epochs - self.epochs)
