"""The shortest step across a hyperplane, inside the range of the data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from widemargin import norms
from widemargin.attacks.input_range import Bounds, Inputs
from widemargin.types import PerExample

_ROUNDS = 20


def shortest_step(w: Inputs, need: PerExample, x: Inputs, p: float, bounds: Bounds) -> Inputs:
    """δ of least ‖δ‖_p with w·δ = −need and x + δ inside `bounds`; as far as possible where that is not enough.

    Without bounds δ_j ∝ −sign(w_j)|w_j|^{q−1}, one entry for p = 1. With them the entries that meet their bound stay
    there and the others go on: δ_j = −sign(w_j) min(t|w_j|^{q−1}, limit_j), by the conditions of Karush, Kuhn and
    Tucker; for p = 1 the entries are filled in the order of |w_j|. Where w is 0 so is δ.
    """
    size = w.flatten(1).abs()
    limit = torch.full_like(size, torch.inf)
    if bounds is not None:
        limit = torch.where(w > 0, x - bounds[0], bounds[1] - x).clamp(min=0).flatten(1)
    if p == 1:
        length = _greedy(size, need, limit)
    else:
        largest = size.amax(dim=1, keepdim=True).clamp(min=torch.finfo(size.dtype).tiny)
        q = norms.dual(p)
        shape = (size > 0).to(size.dtype) if p == math.inf else (size / largest) ** (q - 1)
        length = _filled(size, shape, need, limit)
    return (-w.sign().flatten(1) * length).view_as(w)


def _greedy(size: Tensor, need: Tensor, limit: Tensor) -> Tensor:
    ordered, index = size.sort(dim=1, descending=True, stable=True)
    available = limit.gather(1, index)
    gain = torch.where(ordered > 0, ordered * available, torch.zeros_like(ordered))
    before = torch.cat((torch.zeros_like(gain[:, :1]), gain.cumsum(dim=1)[:, :-1]), dim=1)
    left = (need[:, None] - before).clamp(min=0)
    used = torch.where(ordered > 0, left / ordered, torch.zeros_like(left)).minimum(available)
    return torch.zeros_like(size).scatter(1, index, used)


def _filled(size: Tensor, shape: Tensor, need: Tensor, limit: Tensor) -> Tensor:
    gain = size * shape
    length = torch.zeros_like(size)
    full = torch.zeros_like(size, dtype=torch.bool)
    for _ in range(_ROUNDS):
        left = need - torch.where(full, size * length, torch.zeros_like(size)).sum(dim=1)
        rate = torch.where(full, torch.zeros_like(gain), gain).sum(dim=1)
        t = torch.where(rate > 0, left.clamp(min=0) / rate, torch.zeros_like(rate))
        length = torch.where(full, limit, (t[:, None] * shape).minimum(limit))
        reached = full | ((length >= limit) & (shape > 0))
        if bool((reached == full).all()):
            break
        full = reached
    return length
