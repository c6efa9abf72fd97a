"""The decision boundary of a network on the plane, as points, for a figure (elsayed, Fig. 1b)."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

from widemargin import geometry
from widemargin.data import Samples
from widemargin.studies.rows import Row

BOX = (-2.2, 2.2, -1.7, 1.7)
"""left, right, bottom, top: a box around the toy data."""


def measured(network: nn.Module, train: Samples, *, samples: bool = False, apart: float = 0.05) -> Row:
    """Points on the exact boundary, at most `apart` from the next one, and, with `samples`, the training samples.

    All in one curve, "plane"; `what` says what a point is.
    """
    e1, e2 = torch.eye(2, dtype=torch.float64)
    plane = geometry.slice2d(copy.deepcopy(network).double().cpu(), torch.zeros(2, dtype=torch.float64), e1, e2, BOX)
    points = []
    for left, bottom, right, top in geometry.plain(plane, cells=False).get("boundary", []):
        count = max(1, math.ceil(math.hypot(right - left, top - bottom) / apart))
        for k in range(count):
            share = k / count
            points.append(_point("boundary", left + share * (right - left), bottom + share * (top - bottom)))
    if samples:
        for (x1, x2), label in zip(train.x.tolist(), train.y.tolist()):
            points.append(_point(f"training sample of class {label}", x1, x2))
    return {"points": points}


def _point(what: str, x1: float, x2: float) -> Row:
    return {"curve": "plane", "at": {"what": what, "x1": round(x1, 4)}, "x2": round(x2, 4)}
