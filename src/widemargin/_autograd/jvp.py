"""Derivatives along directions by two backward passes, of a graph that is there already."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor


def pushed(outputs: Tensor, inputs: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """J·u of `outputs` at every one of `inputs`, along its directions u `[some, ...]`: `[some, *outputs.shape]`.

    Jᵀv is linear in v, so that the derivative of Jᵀv·u in v is J·u: one backward pass for Jᵀv, at all inputs, and one
    through that pass for each direction, several together where torch has rules for it. The graph is kept.
    """
    if not outputs.requires_grad:
        return [outputs.new_zeros(len(u), *outputs.shape) for u in directions]
    v = torch.zeros_like(outputs, requires_grad=True)
    pulled = torch.autograd.grad(outputs, inputs, v, create_graph=True, allow_unused=True)
    return [_along(g, v, u) for g, u in zip(pulled, directions)]


def _along(pulled: Tensor | None, v: Tensor, directions: Tensor) -> Tensor:
    if pulled is None or not pulled.requires_grad:
        return v.new_zeros(len(directions), *v.shape)
    u = directions.reshape(-1, *pulled.shape).to(pulled.dtype)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*performance drop")  # a loop, operation by operation
            (found,) = torch.autograd.grad(
                pulled, v, u, retain_graph=True, is_grads_batched=True, materialize_grads=True
            )
    except (RuntimeError, UserWarning):
        each = [torch.autograd.grad(pulled, v, one, retain_graph=True, materialize_grads=True)[0] for one in u]
        return torch.stack(each)
    return found
