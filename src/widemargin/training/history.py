"""History of a training: loss, accuracy and mean distance to the boundary (elsayed, Fig. 17–19)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from widemargin._io.files import write_json

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
            known = sorted({name for row in rows for name in row} - {"epoch", "step", "split"})
            raise ValueError(f"name is {name!r}, expected one of {', '.join(known)}")
        return tuple((float(row["epoch"]), float(row[name])) for row in rows if name in row)

    def last(self, split: str = "train") -> Row:
        """The last row of that part."""
        return next(row for row in reversed(self.rows) if row["split"] == split)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the rows as JSON, whole or not at all."""
        return write_json(Path(path), list(self.rows))
