"""Slow, obvious versions of linear relaxation: one sample, one unit at a time, dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

Vector = Any
Pair = tuple[Vector, Vector]


def dense(model: nn.Sequential) -> list[tuple[Vector, Vector, tuple[float, float] | None]]:
    """(W, b, slopes after it) of every linear layer of an MLP."""
    found: list[tuple[Vector, Vector, tuple[float, float] | None]] = []
    for module in model:
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().double().numpy()
            bias = np.zeros(len(weight)) if module.bias is None else module.bias.detach().double().numpy()
            found.append((weight, bias, None))
        elif isinstance(module, nn.ReLU):
            found[-1] = (*found[-1][:2], (0.0, 1.0))
        elif isinstance(module, nn.LeakyReLU):
            found[-1] = (*found[-1][:2], (module.negative_slope, 1.0))
    return found


def margin(model: nn.Sequential, x: Tensor, y: int, radius: float, p: float, method: str) -> list[float]:
    """f_y − f_i for the other classes i over the ball, as `certify.margin_bound` bounds it."""
    layers = dense(model)
    point = x.double().numpy()
    q = 1.0 if p == np.inf else np.inf if p == 1 else p / (p - 1)
    boxes: list[Pair] = []
    h = point
    reach: Any = radius * (len(point) ** (0.5 - 1 / p) if p > 2 else 1.0)
    for depth, (weight, bias, _) in enumerate(layers):
        low, high = [], []
        before = None if not depth else activated(boxes[-1], layers[depth - 1][2])
        for unit in range(len(bias)):
            row = weight[unit]
            if before is None:
                middle, spread = row @ point + bias[unit], radius * np.linalg.norm(row, q)
                a, b = middle - spread, middle + spread
            else:
                a = bias[unit] + sum(w * (before[0][j] if w > 0 else before[1][j]) for j, w in enumerate(row))
                b = bias[unit] + sum(w * (before[1][j] if w > 0 else before[0][j]) for j, w in enumerate(row))
            if method != "ibp":
                middle, spread = row @ h + bias[unit], reach * np.linalg.norm(row)
                a, b = max(a, middle - spread), min(b, middle + spread)
            if method == "crown" and depth and layers[depth][2] is not None and a < 0 < b:
                one = np.eye(len(bias))[unit]
                low_plane = plane(layers[: depth + 1], boxes, one, point, radius, q)
                high_plane = -plane(layers[: depth + 1], boxes, -one, point, radius, q)
                a, b = max(a, low_plane), min(b, high_plane)
            low.append(a)
            high.append(b)
        boxes.append((np.array(low), np.array(high)))
        slopes = layers[depth][2]
        h = weight @ h + bias
        reach *= np.linalg.norm(weight, 2)
        if slopes is not None:
            h = np.where(h > 0, slopes[1] * h, slopes[0] * h)
            reach *= max(map(abs, slopes))
    low, high = boxes[-1]
    answers = []
    for i in range(len(low)):
        if i == y:
            continue
        one = np.eye(len(low))[y] - np.eye(len(low))[i]
        by_plane = -np.inf if method == "ibp" else plane(layers, boxes[:-1], one, point, radius, q)
        answers.append(max(low[y] - high[i], by_plane))
    return answers


def activated(box: Pair, slopes: tuple[float, float] | None) -> Pair:
    """The box after an activation."""
    assert slopes is not None
    low, high = [], []
    for a, b in zip(*box):
        values = [slopes[1] * t if t > 0 else slopes[0] * t for t in (a, b)] + ([0.0] if a < 0 < b else [])
        low.append(min(values))
        high.append(max(values))
    return np.array(low), np.array(high)


def plane(layers: Any, boxes: list[Pair], row: Vector, x: Vector, radius: float, q: float) -> float:
    """The smallest value of the linear lower bound of row·h over the ball."""
    constant = 0.0
    for depth in reversed(range(len(layers))):
        weight, bias, slopes = layers[depth]
        if depth < len(layers) - 1:
            new = np.zeros(len(row))
            for unit, (a, b) in enumerate(zip(*boxes[depth])):
                slope, height = side(a, b, slopes, row[unit] > 0)
                new[unit] = row[unit] * slope
                constant += row[unit] * height
            row = new
        constant += row @ bias
        row = row @ weight
    return float(row @ x + constant - radius * np.linalg.norm(row, q))


def side(a: float, b: float, slopes: tuple[float, float], below: bool) -> tuple[float, float]:
    """Slope and height of the line below (or above) an activation of two slopes on [a, b]."""
    negative, positive = slopes
    if a >= 0:
        return positive, 0.0
    if b <= 0:
        return negative, 0.0
    chord = (positive * b - negative * a) / (b - a)
    if below == (positive >= negative):
        return (positive if b > -a else negative), 0.0
    return chord, positive * b - chord * b
