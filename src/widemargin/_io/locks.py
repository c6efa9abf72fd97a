"""Locks between processes: of an open file, of a folder, and of the parts of a job that several processes share.

The operating system releases all of them when a process ends, however it ends. Where locks are not supported
(Windows, some network disks), nothing is locked.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()
"""Open lock files of folders: a forked process closes them, or it would hold the lock when its parent has ended."""


@contextmanager
def locked(file: int) -> Iterator[None]:
    """Other processes that lock the same open file wait until the `with` block ends."""
    if fcntl is None:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def locked_folder(name: str, folder: Path) -> Iterator[None]:
    """Hold `folder`, in this process and thread alone; a `BlockingIOError` says who holds it already.

    `name` is the argument that names the folder.
    """
    if fcntl is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    file = _taken(name, folder, path)
    _HELD.add(file)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # first, so that nobody takes the lock of a file that is then removed
        _HELD.discard(file)
        os.close(file)


class Claims:
    """Parts of a job, by hexadecimal keys, that processes on one or more machines take: each part has one holder."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        if fcntl is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def take(self, key: str) -> bool:
        """Take the part; False if another process holds it."""
        if self._file is None:
            return True
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            if not _is_unsupported(error):
                raise
        return True

    def release(self, key: str) -> None:
        """Give the part back."""
        if self._file is not None:
            with suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))

    def close(self) -> None:
        """Give all parts back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _place(key: str) -> int:
    """The byte of the lock file that stands for a key."""
    return int(key[:15], 16)


def _taken(name: str, folder: Path, path: Path) -> int:
    """The open and locked file at `path`, with a note of who holds it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(file)
            os.close(file)
            if not isinstance(error, BlockingIOError):
                if _is_unsupported(error):
                    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                raise
            raise BlockingIOError(
                f"{name} is {str(folder)!r}, which {holder} is using: wait for it to end, or name another folder"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                note = {"process": os.getpid(), "machine": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
                os.ftruncate(file, 0)
                with suppress(OSError):  # only for error messages: a full disk must not end a training
                    os.pwrite(file, json.dumps(note).encode(), 0)
                return file
        os.close(file)  # the previous holder has removed the file: open the new one


def _holder(file: int) -> str:
    try:
        note = json.loads(os.pread(file, 4096, 0))
        return f"process {note['process']} on {note['machine']}, since {note['since']},"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _is_unsupported(error: OSError) -> bool:
    return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def _close_held() -> None:
    for file in _HELD:
        with suppress(OSError):
            os.close(file)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)
