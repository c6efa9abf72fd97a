"""Finished trials on disk."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from studies import tiny
from widemargin.studies.store import Store
from widemargin.studies.trial import Trial


def test_what_is_added_is_there_for_the_next_reader(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "E3.jsonl")
    trial = tiny.trial()
    assert trial not in store
    store.add(trial, {"accuracy": 0.5}, 1.23456, {"commit": "abc"})
    again = Store(store.path)
    assert trial in store
    assert trial in again
    assert again[trial] == store[trial] == {"accuracy": 0.5}
    assert again.seconds("smoke", "final") == [1.235]
    assert again.seconds("paper", "final") == again.seconds("smoke", "search") == []


def _watched(trial: Trial, **more: object) -> Trial:
    return dataclasses.replace(trial, settings={**trial.settings, "watch": {"every": 5}, **more}, study="other")


def test_a_trial_that_another_study_watched_is_taken_without_its_curves(tmp_path: Path) -> None:
    one, two, three = (tiny.trial(seed=seed) for seed in (0, 1, 2))
    other = Store(tmp_path / "other.jsonl")
    other.add(_watched(one), {"accuracy": 0.5, "points": [{"curve": "distance"}]}, 4.0, {"commit": "abc"})
    other.add(_watched(two, measure=[{"kind": "attack"}]), {"accuracy": 0.6, "points": [{"curve": "fgsm"}]}, 1.0, {})
    store = Store(tmp_path / "this.jsonl")
    store.borrow([one, two, three])
    assert store[one] == {"accuracy": 0.5}
    assert two not in store  # it was measured as well
    assert three not in store
    (record,) = Store(tmp_path / "this.jsonl").records.values()
    assert (record["key"], record["seconds"], record["origin"]) == (one.key, 4.0, {"commit": "abc"})
    assert record["trial"]["settings"] == one.plain()["settings"]


def test_a_torn_last_line_is_dropped_and_then_cut_off(tmp_path: Path) -> None:
    store = Store(tmp_path / "E3.jsonl")
    first, second = tiny.trial(), tiny.trial(seed=1)
    store.add(first, {"accuracy": 0.5}, 1.0, {})
    whole = store.path.read_bytes()
    for torn in (b"{", b'{"key": "x", ' + b"y" * 70_000, whole[:-2]):
        store.path.write_bytes(whole + torn)
        read = Store(store.path)
        assert set(read.records) == {first.key}
        read.add(second, {"accuracy": 0.6}, 1.0, {})
        assert len(store.path.read_bytes().splitlines()) == 2
        assert Store(store.path)[second] == {"accuracy": 0.6}


def test_a_file_that_is_only_a_torn_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "E3.jsonl"
    path.write_bytes(b'{"key": "1')
    store = Store(path)
    assert store.records == {}
    store.add(tiny.trial(), {}, 1.0, {})
    assert len(Store(path).records) == 1


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "E3.jsonl"
    Store(path).add(tiny.trial(), {}, 1.0, {})
    path.write_bytes(b"{\n" + path.read_bytes())
    with pytest.raises(ValueError, match=r"E3\.jsonl.*line 1\b"):
        Store(path)


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    store = Store(tmp_path / "E3.jsonl")
    trial = tiny.trial()
    store.add(trial, {"loss": float("nan"), "points": [{"curve": "c", "mean": float("inf")}]}, 1.0, {})
    assert store[trial] == {"loss": None, "points": [{"curve": "c", "mean": None}]}


def test_a_last_line_without_its_end_is_kept_where_it_is_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "E3.jsonl")
    first, second = tiny.trial(), tiny.trial(seed=1)
    store.add(first, {"accuracy": 0.5}, 1.0, {})
    store.path.write_bytes(store.path.read_bytes()[:-1])  # an editor took the line end
    read = Store(store.path)
    assert read[first] == {"accuracy": 0.5}
    read.add(second, {"accuracy": 0.6}, 1.0, {})
    assert Store(store.path).records.keys() == {first.key, second.key}


@pytest.mark.parametrize("content", [b"the only copy of a thesis", b"[1, 2]", b'{"my": "notes"}'])
def test_a_file_that_is_no_log_is_not_cut(content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "thesis.txt"
    target.write_bytes(content)
    path = tmp_path / "E3.jsonl"
    path.symlink_to(target)
    with pytest.raises(ValueError, match=r"E3\.jsonl"):
        Store(path).add(tiny.trial(), {}, 1.0, {})
    assert target.read_bytes() == content


def test_a_log_behind_a_symlink_is_continued_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path = tmp_path / "E3.jsonl"
    path.symlink_to(tmp_path / "disk" / "E3.jsonl")
    Store(path).add(tiny.trial(), {}, 1.0, {})
    Store(path).add(tiny.trial(seed=1), {}, 1.0, {})
    assert path.is_symlink()
    assert len(Store(tmp_path / "disk" / "E3.jsonl").records) == 2


class SmallDisk:
    """`os.write` of a disk with `room` bytes left: it writes what fits, and nothing once it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self.write = room, os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, file: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.write(file, bytes(data)[: self.room])
        self.room -= written
        return written


def test_a_full_disk_is_an_error_and_costs_no_earlier_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "E3.jsonl")
    store.add(tiny.trial(), {"accuracy": 0.5}, 1.0, {})
    before = store.path.read_bytes()
    for room in (0, 1, 100, len(before) - 1):
        with monkeypatch.context() as patched:
            SmallDisk(patched, room)
            with pytest.raises(OSError, match=r"no space.*E3\.jsonl"):
                store.add(tiny.trial(seed=1), {"accuracy": 0.6}, 1.0, {})
        assert store.path.read_bytes() == before
        assert tiny.trial(seed=1) not in store
    with monkeypatch.context() as patched:
        SmallDisk(patched, 10 * len(before))
        store.add(tiny.trial(seed=1), {"accuracy": 0.6}, 1.0, {})
    assert len(Store(store.path).records) == 2


def test_a_write_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:7]))
    store = Store(tmp_path / "E3.jsonl")
    store.add(tiny.trial(), {"accuracy": 0.5}, 1.0, {})
    assert Store(store.path)[tiny.trial()] == {"accuracy": 0.5}


def test_trials_of_another_process_are_seen(tmp_path: Path) -> None:
    mine, other = Store(tmp_path / "E3.jsonl"), Store(tmp_path / "E3.jsonl")
    first, second = tiny.trial(), tiny.trial(seed=1)
    other.add(first, {"accuracy": 0.5}, 1.0, {})
    assert first not in mine
    mine.refresh()
    assert first in mine
    mine.add(second, {"accuracy": 0.6}, 1.0, {})
    other.refresh()
    assert other[second] == {"accuracy": 0.6}


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"3",
        b'{"key": 1, "row": {}, "trial": {"scale": "quick", "stage": "final"}, "seconds": 1}',
        b'{"key": "a", "row": [], "trial": {"scale": "quick", "stage": "final"}, "seconds": 1}',
        b'{"key": "a", "row": {}, "trial": {}, "seconds": 1}',
        b'{"key": "a", "row": {}, "trial": {"scale": "quick", "stage": "final"}, "seconds": "1"}',
        b"[" * 100_000,
        b'{"key": "\xff"}',
    ],
)
def test_a_mutated_line_is_one_sentence_that_names_it(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "E3.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=r"E3\.jsonl has a line 1 "):
        Store(path)
