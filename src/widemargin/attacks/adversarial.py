"""Adversarial training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from widemargin.attacks.fgsm_pgd import check_settings, pgd
from widemargin.attacks.input_range import Bounds, Inputs, check_inputs
from widemargin.attacks.noise import Seed, global_generator
from widemargin.checks import check_flag, check_labels, check_module
from widemargin.entry_checks import checked_by_caller
from widemargin.losses import CrossEntropy, Loss, Wrapper, as_loss
from widemargin.types import Labels


@dataclass(frozen=True, kw_only=True)
class Adversarial(Wrapper):
    """L(x̂) of every sample, with x̂ = `attacks.pgd` of x against the current network (Madry et al. 2018, eq. 2.1).

    x̂ is found in evaluation mode and is a constant for the gradient, which by Danskin's theorem is that of the worst
    case if x̂ attains it; L is taken at x̂ in the mode of the network. A step costs `steps` more forward and backward
    passes. The fast backward and the CUDA graph of L are kept; inside a CUDA graph it is not checked that x lies in
    `bounds`. The defaults are Madry's for MNIST.

    Args:
        loss: L, any loss `(model, x, y) -> [batch]`.
        epsilon: radius of the ball that x̂ lies in.
        step: length α of a step of the ascent; None: 2.5·ε/steps.
        steps: number of steps.
        p: the norm of the ball, ∞ or 2.
        random_start: start at a uniform point of the ball (from torch's global generator, on a GPU the GPU's), or at x.
        bounds: the range of the data, or None.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    epsilon: float | int = 0.3
    step: float | int | None = 0.01
    steps: int = 40
    p: float | int = math.inf
    random_start: bool = True
    bounds: Bounds = (0.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_loss(self.loss))
        check_settings(self.epsilon, self.step, self.steps, self.p, self.bounds)
        check_flag("random_start", self.random_start)

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The adversarial examples, and their labels."""
        return self.examples(model, x, y), y

    def examples(self, model: nn.Module, x: Inputs, y: Labels, *, seed: Seed | None = None) -> Inputs:
        """The x̂ that the loss is taken at; `seed` replaces torch's global generator."""
        check_module(model)
        check_inputs(x, None)
        check_labels(y, len(x))
        attack = partial(pgd, step=self.step, steps=self.steps, p=self.p, random_start=self.random_start)
        seed = global_generator(x.device) if seed is None else seed
        with checked_by_caller():  # a training step has no time for it
            return attack(model, x, y, self.epsilon, seed=seed, bounds=self.bounds)
