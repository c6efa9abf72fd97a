"""Slow, obvious versions of the losses: a loop over samples, places and classes, and one score at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def hinge(margin: Tensor, gamma: float) -> Tensor:
    return gamma - margin if margin < gamma else margin * 0


def band(margin: Tensor, r: float, theta: float, mu: float) -> Tensor:
    """odn (1), branch by branch."""
    if margin <= r - theta:
        return (r - theta - margin) / (r - theta)
    if margin <= r + theta:
        return margin * 0
    return mu * (margin - r - theta) ** 2 / (r + theta) ** 2


def margin_loss(
    difference: Tensor,
    slopes: Mapping[str, Tensor],
    *,
    penalties: Sequence[Callable[[Tensor], Tensor]],
    aggregate: str,
    epsilon: float,
    lowest: Sequence[float] | None = None,
) -> Tensor:
    """elsayed (15) as printed, given f_y − f_i `[batch, others]` and ‖∇f_y − ∇f_i‖ at every place."""
    rows = []
    for k in range(len(difference)):
        total = difference.new_zeros(())
        for place, slope in enumerate(slopes.values()):
            costs = []
            for i in range(difference.shape[1]):
                margin = difference[k, i] / (epsilon + slope[k, i])
                if lowest is not None and margin < lowest[place]:
                    margin = margin * 0 + lowest[place]
                costs.append(penalties[place](margin))
            total = total + (max(costs) if aggregate == "max" else sum(costs))
        rows.append(total)
    return torch.stack(rows)


def scale_free_margin_loss(
    difference: Tensor,
    held: Tensor,
    slopes: Mapping[str, Tensor],
    *,
    penalties: Sequence[Callable[[Tensor], Tensor]],
    steepness: Sequence[float],
    aggregate: str,
) -> Tensor:
    """The scale-free form; `held` has the values of `difference` where a bar makes them constants."""
    tiny = 1e-6
    s = (sum(d**2 for d in difference[:, 0]) / len(difference) + tiny**2) ** 0.5
    s_bar = (sum(float(d) ** 2 for d in held[:, 0]) / len(held) + tiny**2) ** 0.5
    rows = []
    for k in range(len(difference)):
        total = difference.new_zeros(())
        for place, slope in enumerate(slopes.values()):
            everyone = sorted(float(n) for n in slope.flatten())
            floor = max(0.1 * everyone[(len(everyone) - 1) // 2], tiny)
            harmonic = len(everyone) / sum(1 / max(n, floor) for n in everyone)
            costs = [
                penalties[place](difference[k, i] * (s_bar / s) / max(float(slope[k, i]), floor))
                for i in range(difference.shape[1])
            ]
            unit = harmonic / (math.sqrt(2) * max(1.0, s_bar) * len(slopes)) / steepness[place]
            total = total + unit * (max(costs) if aggregate == "max" else sum(costs))
        rows.append(total)
    return torch.stack(rows)


def crammer_singer(scores: Sequence[float], label: int, gamma: float) -> float:
    return max(0.0, gamma - scores[label] + max(s for i, s in enumerate(scores) if i != label))


def weston_watkins(scores: Sequence[float], label: int, gamma: float) -> float:
    return sum(max(0.0, gamma - scores[label] + s) for i, s in enumerate(scores) if i != label)


def target(scores: Sequence[float], label: Any, alpha: float) -> float:
    if len(scores) == 1:
        return float((scores[0] - alpha * float(label)) ** 2)
    return float(sum((s - alpha * (i == int(label))) ** 2 for i, s in enumerate(scores)))
