"""Nero as the errata state it (farhang, 10), number by number in plain Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Matrix = list[list[float]]


@dataclass
class SlowNero:
    """One weight, given as its rows; `projected` says whether its rows are centred and normalised."""

    rows: Matrix
    projected: bool
    lr: float
    beta: float
    t: int = 0
    v: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.v = [0.0 for _ in self.rows]
        if self.projected:
            self.rows = [centred_and_normalised(row) for row in self.rows]
        self.scale = sum(length(row) for row in self.rows) / len(self.rows)
        if self.scale == 0:
            self.scale = 0.01

    def step(self, gradient: Matrix) -> None:
        self.t += 1
        for r, g in enumerate(gradient):
            self.v[r] = self.beta * self.v[r] + (1 - self.beta) * length(g) ** 2
            root = math.sqrt(self.v[r] / (1 - self.beta**self.t))
            unit = [0.0 if self.v[r] == 0 else entry / root for entry in g]
            moved = [p - self.lr * self.scale * u for p, u in zip(self.rows[r], unit)]
            self.rows[r] = centred_and_normalised(moved) if self.projected else moved


def centred_and_normalised(row: list[float]) -> list[float]:
    mean = sum(row) / len(row)
    centred = [entry - mean for entry in row]
    return [entry / length(centred) for entry in centred]


def length(row: list[float]) -> float:
    return math.sqrt(sum(entry**2 for entry in row))
