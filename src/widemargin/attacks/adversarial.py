"""Adversarial training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from widemargin.attacks.arguments import Bounds, Inputs, check_bounds, check_size, check_steps
from widemargin.attacks.pgd import pgd
from widemargin.attacks.rng import Seed
from widemargin.losses import CrossEntropy
from widemargin.types import Labels, PerExample


@dataclass(frozen=True, kw_only=True)
class Adversarial:
    """L(x̂) of every sample, with x̂ = `attacks.pgd` of x against the network as it now is (Madry et al. 2018, eq. 2.1).

    The x̂ are found in evaluation mode and are constants for the gradient, which by Danskin's theorem is then that of
    the worst case, if x̂ is it; L is taken at them in the mode that the network is in. A step costs `steps` more forward
    and backward passes. The defaults are Madry's for MNIST.

    Args:
        loss: L, any loss `(model, x, y) -> [batch]`.
        epsilon: radius of the ball that x̂ lies in.
        step: length α of a step of the ascent; None: 2.5·ε/steps.
        steps: number of steps.
        p: the norm of the ball, ∞ or 2.
        random_start: start at a uniform point of the ball (drawn from torch's global CPU generator), or at x.
        bounds: the range of the data, or None.
    """

    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = field(default_factory=CrossEntropy)
    epsilon: float | int = 0.3
    step: float | int | None = 0.01
    steps: int = 40
    p: float | int = math.inf
    random_start: bool = True
    bounds: Bounds = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise TypeError(f"loss is {self.loss!r}, expected a loss such as losses.CrossEntropy()")
        check_size("epsilon", self.epsilon)
        check_steps(self.step, self.steps)
        check_bounds(self.bounds)
        if self.p not in (2, math.inf):
            raise ValueError(f"p is {self.p!r}, expected inf or 2")

    def __call__(self, model: nn.Module, x: Inputs, y: Labels) -> PerExample:
        """The loss of every sample at its adversarial example."""
        return self.loss(model, self.examples(model, x, y), y)

    def examples(self, model: nn.Module, x: Inputs, y: Labels, *, seed: Seed | None = None) -> Inputs:
        """The x̂ that the loss is taken at; `seed` in place of torch's global generator."""
        return pgd(
            model,
            x,
            y,
            self.epsilon,
            step=self.step,
            steps=self.steps,
            p=self.p,
            random_start=self.random_start,
            seed=torch.default_generator if seed is None else seed,
            bounds=self.bounds,
        )
