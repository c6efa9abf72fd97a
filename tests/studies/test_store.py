"""Finished trials on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies import tiny
from widemargin.studies.store import Store


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


def test_a_torn_last_line_is_dropped_and_then_cut_off(tmp_path: Path) -> None:
    store = Store(tmp_path / "E3.jsonl")
    first, second = tiny.trial(), tiny.trial(seed=1)
    store.add(first, {"accuracy": 0.5}, 1.0, {})
    whole = store.path.read_bytes()
    for torn in (b"{", b'{"key": "x", ' + b"y" * 70_000, whole[:-1]):
        store.path.write_bytes(whole + torn)
        read = Store(store.path)
        assert set(read.records) == {first.key}
        read.add(second, {"accuracy": 0.6}, 1.0, {})
        assert len(store.path.read_bytes().splitlines()) == 2
        assert Store(store.path)[second] == {"accuracy": 0.6}


def test_a_file_that_is_only_a_torn_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "E3.jsonl"
    path.write_bytes(b'{"key": 1')
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
