"""Atomic files: each file is written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widemargin._io.optional import import_optional

if TYPE_CHECKING:
    import numpy as np


def write_json(path: Path, value: object) -> Path:
    """Write plain values as JSON, with null for NaN and infinities."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_parquet(path: Path, columns: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    """Write columns of equal length as Parquet (extra `files`)."""
    arrow = import_optional("pyarrow", "writing Parquet")
    parquet = import_optional("pyarrow.parquet", "writing Parquet")
    table = arrow.table({name: arrow.array(column) for name, column in columns.items()})
    return write_whole(path, lambda part: parquet.write_table(table, part))


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Call `write` with a temporary path beside `path`, then move the file to `path` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        write(part)
        part.chmod(0o644)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def finite(value: object) -> object:
    """Plain values that JSON knows: None for a number that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
