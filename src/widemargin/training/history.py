"""History of a training: loss, accuracy and mean distance to the boundary (elsayed, Fig. 17–19)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn

from widemargin._io.files import write_json
from widemargin.data import batches
from widemargin.losses.protocol import Loss, needs_index, values_of
from widemargin.margins.measurement import measure
from widemargin.modules import evaluating
from widemargin.training.batches import Replica

Row: TypeAlias = dict[str, float | int | str]
"""epoch, step, split ("train" or "validation"), loss, accuracy, "distance at …"; of train also objective and lr."""


@dataclass(frozen=True)
class History:
    """A row for every moment at which the network was measured, and for each part of the data.

    Each holds `epoch` (those behind it), `step`, `split`, and what is known of that part: the mean `loss` of the data
    without regularizers, in evaluation mode, the `accuracy`, and the mean `distance at …` each place. Rows of the
    training set also hold `objective`, the mean of what was minimised since the row before, and `lr`.
    """

    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def series(self, name: str, split: str = "train") -> tuple[tuple[float, float], ...]:
        """(epoch, value) of `name`, such as "accuracy" or "distance at input", over time."""
        rows = [row for row in self.rows if row["split"] == split]
        if not rows:
            raise ValueError(f"split is {split!r}, of which nothing was measured")
        if not any(name in row for row in rows):
            raise ValueError(f"name is {name!r}, expected one of {', '.join(_names(rows))}")
        return tuple((float(row["epoch"]), float(row[name])) for row in rows if name in row)

    def last(self, split: str = "train") -> Row:
        """The last row of that part."""
        return next(row for row in reversed(self.rows) if row["split"] == split)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the rows as JSON, whole or not at all."""
        return write_json(Path(path), list(self.rows))


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """Measures the values of a row."""

    loss: Loss
    at: tuple[str, ...] | None
    p: float
    replica: Replica
    batch_size: int

    def read(self, model: nn.Module, data: object, index: Tensor | None) -> dict[str, float]:
        """Mean loss, accuracy and mean distance at every place, in evaluation mode."""
        found = measure(model, data, at=self.at, p=self.p, batch_size=self.batch_size, progress=False)
        known: dict[str, float] = {"accuracy": found.accuracy}
        for name, distribution in found.statistics.items():
            known[f"distance at {name}"] = distribution.mean
        if index is None and needs_index(self.loss):
            return known  # such a loss is defined for training samples only
        return {"loss": self._loss(model, data, index), **known}

    def _loss(self, model: nn.Module, data: object, index: Tensor | None) -> float:
        total, count = 0.0, 0
        with evaluating(model), torch.enable_grad():
            for x, y in batches(data, batch_size=self.batch_size):
                moved = self.replica.move(x, y)
                rows = None if index is None else index[count : count + len(y)]
                total += float(values_of(self.loss, model, *moved, rows).detach().double().sum())
                count += len(y)
        return total / count


def _names(rows: Sequence[Row]) -> list[str]:
    return sorted({name for row in rows for name in row} - {"epoch", "step", "split"})
