"""Finished trials on disk: one file a study, a line a trial, written whole or not at all, keyed by the trial's hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from widemargin._io.files import finite
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings
from widemargin.studies.trial import Trial


class Store:
    """The finished trials of one study.

    A line is appended and reaches the disk before anything else happens. Whoever is killed while writing leaves a
    last line without its end: it is dropped by the next reader, and cut off by the next writer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Row] = {record["key"]: record for record in _read(path)}

    def __contains__(self, trial: object) -> bool:
        return isinstance(trial, Trial) and trial.key in self.records

    def __getitem__(self, trial: Trial) -> Row:
        """What the task measured."""
        row: Row = self.records[trial.key]["row"]
        return row

    def add(self, trial: Trial, row: Settings, seconds: float, origin: Settings) -> None:
        """Append a finished trial: what it was, what it measured, how long it took, and where it ran."""
        record = {"key": trial.key, "trial": trial.plain(), "row": finite(row)}
        record |= {"seconds": round(seconds, 3), "origin": dict(origin)}
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file, _alone(file.fileno()):
            _cut_torn_line(file.fileno())
            os.write(file.fileno(), line.encode())
            os.fsync(file.fileno())
        self.records[trial.key] = json.loads(line)

    def seconds(self, scale: str, stage: str) -> list[float]:
        """How long the trials of a scale and stage took."""
        of_scale = [record for record in self.records.values() if record["trial"]["scale"] == scale]
        return [record["seconds"] for record in of_scale if record["trial"]["stage"] == stage]


def _read(path: Path) -> Iterator[Row]:
    if not path.is_file():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # after the last line end there is nothing, or a torn line
        try:
            record = json.loads(line)
            record["key"], record["row"], record["trial"], record["seconds"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} has a line {number} that is no finished trial: {error}") from error
        yield record


def _cut_torn_line(file: int) -> None:
    size = end = os.lseek(file, 0, os.SEEK_END)
    while end:
        start = max(0, end - 65536)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)


@contextmanager
def _alone(file: int) -> Iterator[None]:
    """Other processes that write to the same file wait."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
