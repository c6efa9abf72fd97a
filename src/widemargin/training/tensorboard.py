"""The rows of a history as curves in TensorBoard, if it is asked for."""

from __future__ import annotations

import os
from typing import Any

from widemargin._io.optional import import_optional
from widemargin.training.history import Row


class Board:
    """Writes rows below `folder`, or nowhere where that is None."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._writer: Any = None
        if folder is not None:
            module = import_optional("torch.utils.tensorboard", "tensorboard=")
            self._writer = module.SummaryWriter(os.fspath(folder))

    def write(self, row: Row) -> None:
        """A point on each of the row's curves, named split/name."""
        if self._writer is not None:
            for name, value in row.items():
                if name not in ("epoch", "step", "split"):
                    self._writer.add_scalar(f"{row['split']}/{name}", value, row["step"])

    def close(self) -> None:
        """Finish the files."""
        if self._writer is not None:
            self._writer.close()
