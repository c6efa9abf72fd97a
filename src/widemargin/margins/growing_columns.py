"""Columns that grow batch by batch, each in one buffer.

Preallocated buffers avoid heap fragmentation: many small tensors between large temporary ones make memory grow.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 1 << 16
"""Rows of the first buffer; each further one is twice as long."""


class Columns:
    """Rows of several columns, on the device on which the first came."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, **parts: Tensor) -> None:
        """Append rows: a part of equal length for every column."""
        rows = self._rows + len(next(iter(parts.values())))
        for name, part in parts.items():
            buffer = self._buffers.get(name)
            if buffer is None or len(buffer) < rows:
                longer = part.new_empty(max(SMALLEST, 2 * rows))
                if buffer is not None:
                    longer = longer.to(buffer.dtype)
                    longer[: self._rows] = buffer[: self._rows]
                buffer = self._buffers[name] = longer
            if part.dtype != buffer.dtype:  # as torch.cat does
                buffer = self._buffers[name] = buffer.to(torch.promote_types(part.dtype, buffer.dtype))
            buffer[self._rows : rows] = part
        self._rows = rows

    def column(self, name: str) -> Tensor:
        """A column, in the memory of the CPU."""
        return self._buffers[name][: self._rows].cpu().clone()
