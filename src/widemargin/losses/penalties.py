"""Penalties of a margin."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin.checks import check_number


class Penalty(abc.ABC):
    """A number ≥ 0 for every margin: 0 where the margin is large enough."""

    @abc.abstractmethod
    def __call__(self, margin: Tensor, place: int = 0) -> Tensor:
        """The penalty of each margin, elementwise; `place` is the position of the place in the loss's `at`."""

    def stacked(self, margins: Tensor) -> Tensor:
        """The penalties of margins `[places, …]`; a penalty without settings by place overrides it."""
        return torch.stack([self(margin, place) for place, margin in enumerate(margins)])

    @abc.abstractmethod
    def reach(self, place: int = 0) -> float:
        """The smallest margin without a penalty: γ for the hinge, r − θ for the band."""

    @abc.abstractmethod
    def slope(self, place: int = 0) -> float:
        """The decrease of the penalty per unit of a margin below the reach."""

    def check_places(self, count: int) -> None:  # noqa: B027
        """Raise unless the penalty has settings for `count` places."""


@dataclass(frozen=True, kw_only=True)
class Hinge(Penalty):
    """max(0, γ − m): the hinge of elsayed (15) and of odn's baseline (errata 1: odn prints it with the wrong sign).

    `gamma` is in the units of the place (of the input: of the data) and may be one number, or a tuple of one per place.
    """

    gamma: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        for gamma in self.gamma if isinstance(self.gamma, tuple) else (self.gamma,):
            check_number("gamma", gamma, above=0.0)

    def __call__(self, margin: Tensor, place: int = 0) -> Tensor:
        """max(0, γ − m)."""
        return (self.reach(place) - margin).relu()

    def stacked(self, margins: Tensor) -> Tensor:
        """max(0, γ − m) at every place, in one operation where there is one γ."""
        return super().stacked(margins) if isinstance(self.gamma, tuple) else self(margins)

    def reach(self, place: int = 0) -> float:
        """γ of that place."""
        return self.gamma[place] if isinstance(self.gamma, tuple) else self.gamma

    def slope(self, place: int = 0) -> float:  # noqa: ARG002
        """1 everywhere."""
        return 1.0

    def check_places(self, count: int) -> None:
        """Raise unless there is one γ, or one per place."""
        if isinstance(self.gamma, tuple) and len(self.gamma) != count:
            raise ValueError(f"gamma has {len(self.gamma)} entries, but at has {count} places")


@dataclass(frozen=True, kw_only=True)
class Band(Penalty):
    """The optimal-margin-distribution penalty, odn (1): zero inside the band [r − θ, r + θ].

        (r − θ − m)/(r − θ)          m ≤ r − θ
        0                            r − θ < m ≤ r + θ
        μ(m − r − θ)²/(r + θ)²       m > r + θ

    θ is the half-width of the band, r its centre (errata 3); the upper branch is divided by (r + θ)² (errata 4).
    """

    r: float = 2.0
    theta: float = 1.0
    mu: float = 0.1

    def __post_init__(self) -> None:
        check_number("r", self.r, above=0.0)
        check_number("theta", self.theta, least=0.0, below=float(self.r))
        check_number("mu", self.mu, least=0.0)

    def __call__(self, margin: Tensor, place: int = 0) -> Tensor:
        """Odn (1)."""
        low, high = self.reach(place), self.r + self.theta
        return (low - margin).relu() / low + self.mu * (margin - high).relu().square() / high**2

    def stacked(self, margins: Tensor) -> Tensor:
        """Odn (1), the same at every place."""
        return self(margins)

    def reach(self, place: int = 0) -> float:  # noqa: ARG002
        """r − θ, the lower edge of the band."""
        return self.r - self.theta

    def slope(self, place: int = 0) -> float:
        """1/(r − θ), below the band."""
        return 1 / self.reach(place)
