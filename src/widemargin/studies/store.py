"""Finished trials on disk: one file per study, one line per trial, written atomically and keyed by the trial's hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from widemargin._io.files import disk_full_named, finite, write_all
from widemargin._io.locks import locked
from widemargin._io.typed_json import Json, check_type
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, SettingsDict
from widemargin.studies.trial import Trial

_BEGIN = b'{"key": "'
"""How every line begins."""


class _Of(TypedDict):
    scale: str
    stage: str


class _Line(TypedDict):
    """The entries of a line that are read; there are others."""

    key: str
    row: dict[str, Json]
    trial: _Of
    seconds: float
    origin: dict[str, Json]


class Store:
    """The finished trials of one study.

    A line is appended and synced to disk before anything else happens. A process killed while writing leaves an
    incomplete last line; readers skip it and the next writer removes it. A full disk raises an error and leaves the
    file as it was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Row] = {}
        self._read = self._lines = 0
        self.refresh()

    def __contains__(self, trial: object) -> bool:
        return isinstance(trial, Trial) and trial.key in self.records

    def __getitem__(self, trial: Trial) -> Row:
        """What the task measured."""
        row: Row = self.records[trial.key]["row"]
        return row

    def refresh(self) -> None:
        """Read the trials that other processes have added since the last time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return
        *lines, last = content.split(b"\n")  # after the last newline: nothing, or an incomplete line
        for line in lines:
            self._lines += 1
            self._take(line, self._lines)
            self._read += len(line) + 1
        if _is_whole(last):
            self._take(last, self._lines + 1)

    def add(self, trial: Trial, row: Settings, seconds: float, origin: Settings) -> None:
        """Append a finished trial: what it was, what it measured, how long it took, and where it ran."""
        record = {"key": trial.key, "trial": trial.plain(), "row": finite(row)}
        self.take({**record, "seconds": round(seconds, 3), "origin": dict(origin)})

    def take(self, record: Settings) -> None:
        """Append the stored form of a finished trial."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        self._write(line.encode("utf-8", errors="backslashreplace"))
        self.records[record["key"]] = json.loads(line)

    def borrow(self, trials: Iterable[Trial]) -> None:
        """Copy those of the trials that other studies of the folder have finished: equal keys have equal results.

        A trial that differs only by a `watch` counts as equal; its curves are left out.
        """
        wanted = {trial.key.encode() for trial in trials if trial not in self}
        for path in sorted(self.path.parent.glob("*.jsonl")) if wanted else ():
            if path.name == self.path.name:
                continue
            for line in path.read_bytes().split(b"\n"):
                key = line[len(_BEGIN) : line.find(b'"', len(_BEGIN))]
                if key in wanted and _is_whole(line):
                    wanted.remove(key)
                    self._write(line + b"\n")
                elif b'"watch"' in line and b'"measure"' not in line and _is_whole(line):
                    record = _unwatched(json.loads(line))
                    if record["key"].encode() in wanted:
                        wanted.remove(record["key"].encode())
                        self.take(record)
        self.refresh()

    def seconds(self, scale: str, stage: str) -> list[float]:
        """How long the trials of a scale and stage took."""
        of_scale = [record for record in self.records.values() if record["trial"]["scale"] == scale]
        return [record["seconds"] for record in of_scale if record["trial"]["stage"] == stage]

    def _write(self, line: bytes) -> None:
        with disk_full_named(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b", buffering=0) as file, locked(file.fileno()):
                self._append(file.fileno(), line)

    def _append(self, file: int, line: bytes) -> None:
        end, torn = _last_line(file)
        size = end + len(torn)
        if _is_whole(torn):
            line = b"\n" + line
            end = size
        elif torn and not (torn.startswith(_BEGIN) or _BEGIN.startswith(torn)):
            raise ValueError(f"{self.path} ends with {torn[:40]!r}, which is no finished trial: it is left as it is")
        if end < size:
            os.ftruncate(file, end)
        try:
            write_all(file, line)
            os.fsync(file)
        except BaseException:
            os.ftruncate(file, end)
            raise

    def _take(self, line: bytes, number: int) -> None:
        try:
            record = json.loads(line)
            check_type(record, _Line, "it", unknown=True)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.path} has a line {number} that is no finished trial: {error}") from error
        self.records[record["key"]] = record


def _unwatched(record: Settings) -> SettingsDict:
    """A finished trial as if it had not been watched, which changes no weight; all of its curves are left out."""
    of = record["trial"]
    trial = Trial(**{**of, "settings": {key: value for key, value in of["settings"].items() if key != "watch"}})
    row = {key: value for key, value in record["row"].items() if key != "points"}
    return {**record, "key": trial.key, "trial": trial.plain(), "row": row}


def _is_whole(line: bytes) -> bool:
    """Whether a line without a newline is a complete trial: a truncated one is not valid JSON."""
    try:
        return line.startswith(_BEGIN) and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _last_line(file: int) -> tuple[int, bytes]:
    """Offset and content of a last line without a newline."""
    begin = size = os.lseek(file, 0, os.SEEK_END)
    while begin:
        start = max(0, begin - 65536)
        newline = os.pread(file, begin - start, start).rfind(b"\n")
        if newline >= 0:
            begin = start + newline + 1
            break
        begin = start
    return begin, os.pread(file, size - begin, begin)
