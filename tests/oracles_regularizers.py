"""Slow, obvious versions of the regularizers of Jacobians: explicit Jacobians, loops over samples and classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def jacobian(model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian `[outputs, inputs]` of one sample x, by `torch.func.jacrev`."""
    f = lambda z: model(z[None]).reshape(-1)  # noqa: E731
    return torch.func.jacrev(f)(x).flatten(1).detach()


def score_jacobians(model: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    return [jacobian(model, sample) for sample in x]


def class_norm(score_jacobian: Tensor, v: Tensor, c: int) -> float:
    """‖v_cᵀJ‖/‖v_c‖, with v_cᵀJ read off the Jacobian of the scores."""
    return float(score_jacobian[c].norm() / v[c].norm())


def pair_norm(score_jacobian: Tensor, v: Tensor, y: int, c: int) -> float:
    return float((score_jacobian[y] - score_jacobian[c]).norm() / (v[y] - v[c]).norm())


def last_linear(model: nn.Module) -> Tensor:
    """The matrix of the last linear layer in the order of definition (true of the networks of these tests)."""
    return [m for m in model.modules() if isinstance(m, nn.Linear)][-1].weight.detach()


def finite_differences(value: Callable[[], Tensor], model: nn.Module, step: float = 1e-6) -> list[Tensor]:
    """∂ value / ∂ every weight of `model`, by central differences, weight by weight."""
    slopes = []
    with torch.no_grad():
        for parameter in model.parameters():
            slope, flat = torch.zeros(parameter.numel(), dtype=parameter.dtype), parameter.view(-1)
            for i in range(len(flat)):
                kept = float(flat[i])
                flat[i] = kept + step
                above = float(evaluate(value))
                flat[i] = kept - step
                below = float(evaluate(value))
                flat[i] = kept
                slope[i] = (above - below) / (2 * step)
            slopes.append(slope.view_as(parameter))
    return slopes


def evaluate(value: Callable[[], Tensor]) -> Tensor:
    with torch.enable_grad():  # the regularizers take gradients themselves
        return value().detach()
