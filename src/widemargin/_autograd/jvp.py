"""Jacobian-vector products of an existing graph, by two backward passes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor


def jvp(outputs: Tensor, inputs: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """J·u of `outputs` at each of `inputs` along its directions u `[some, ...]`: `[some, *outputs.shape]`.

    Jᵀv is linear in v, so the derivative of Jᵀv·u in v is J·u: one backward pass for Jᵀv at all inputs, and one through
    that pass for each direction, batched where torch has rules for it. The graph is kept.
    """
    if not outputs.requires_grad:
        return [outputs.new_zeros(len(u), *outputs.shape) for u in directions]
    v = torch.zeros_like(outputs, requires_grad=True)
    vjps = torch.autograd.grad(outputs, inputs, v, create_graph=True, allow_unused=True)
    return [_derivative(vjp, v, u) for vjp, u in zip(vjps, directions)]


def _derivative(vjp: Tensor | None, v: Tensor, directions: Tensor) -> Tensor:
    if vjp is None or not vjp.requires_grad:
        return v.new_zeros(len(directions), *v.shape)
    u = directions.reshape(-1, *vjp.shape).to(vjp.dtype)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*performance drop")  # torch would loop over the directions
            return torch.autograd.grad(vjp, v, u, retain_graph=True, is_grads_batched=True, materialize_grads=True)[0]
    except (RuntimeError, UserWarning):
        each = [torch.autograd.grad(vjp, v, one, retain_graph=True, materialize_grads=True)[0] for one in u]
        return torch.stack(each)
