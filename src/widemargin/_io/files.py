"""Atomic files: each file is written whole or not at all; a full disk raises a one-line error."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widemargin._io.optional import import_optional

if TYPE_CHECKING:
    import numpy as np

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


class DiskFullError(OSError):
    """No space is left for a file, or the user's disk quota is used up."""


def write_json(path: Path, value: object) -> Path:
    """Write plain values as JSON, with null for NaN and infinities."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return write_text(path, text)


def write_text(path: Path, text: str) -> Path:
    """Write `text`; characters that UTF-8 can't encode (from undecodable file names) are backslash-escaped."""
    content = text.encode("utf-8", errors="backslashreplace")
    return write_whole(path, lambda part: part.write_bytes(content))


def write_parquet(path: Path, columns: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    """Write columns of equal length as Parquet (extra `files`)."""
    arrow = import_optional("pyarrow", "writing Parquet")
    parquet = import_optional("pyarrow.parquet", "writing Parquet")
    table = arrow.table({name: arrow.array(column) for name, column in columns.items()})

    def write(part: Path) -> None:
        with part.open("wb") as file:  # opened here, since pyarrow takes only names that are Unicode
            parquet.write_table(table, file)

    return write_whole(path, write)


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Call `write` with a temporary path beside `path`, then move the file to `path` in one step.

    Behind a symlink the file that it points to is replaced, not the link. The umask decides who may read it.
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with disk_full_named(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            write(part)
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return path


def write_all(file: int, content: bytes) -> None:
    """Write all of `content` to an open file; `os.write` may write a part of it, without an error."""
    left = memoryview(content)
    while left:
        written = os.write(file, left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]


@contextmanager
def disk_full_named(path: Path) -> Iterator[None]:
    """Errors of a full disk inside the block become a one-line error that names `path`."""
    try:
        yield
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise DiskFullError(f"no space is left on the disk for {path}: free some, then run the same again") from error


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that the disk is full, as Python says it or as libraries in Rust do."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := re.search(r"\(os error (\d+)\)", str(error))):
        number = int(found[1])
    return number in _FULL


def check_writable(name: str, folder: Path) -> None:
    """Raise an error that begins with `name` where no file could be written to `folder`; nothing is left behind."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{name} is {str(folder)!r}, which is a file, expected a folder")
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
    probe = there / f".{secrets.token_hex(4)}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(f"{name} is {str(folder)!r}, where no file can be written: {reason}") from error


def finite(value: object) -> object:
    """Plain values that JSON knows: None for a number that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
