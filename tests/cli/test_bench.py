"""`widemargin bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Run


def test_rows_are_shown_and_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    answer = run("bench", "--only", "sokolic's MLP", "--rounds", "1", "--out", str(path))
    assert answer.code == 0, answer.err
    assert "Jacobian regularizer, a backward per class" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    (row,) = json.loads(path.read_text())["rows"]
    assert row["ratio"]["Jacobian regularizer, a backward per class"] == 1


def test_what_no_time_was_left_for_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widemargin.bench.rows.time.monotonic", iter(range(0, 10**6, 100)).__next__)
    answer = run("bench", "--only", "sokolic", "--minutes", "0.1", "--out", str(tmp_path / "bench.json"))
    assert answer.code == 0, answer.err
    assert "no time was left for: Jacobian, sokolic's MLP, Jacobian, sokolic's CNN" in " ".join(answer.err.split())


def test_a_row_that_is_not_there(run: Run, tmp_path: Path) -> None:
    answer = run("bench", "--only", "nothing", "--out", str(tmp_path / "bench.json"))
    assert answer.code == 2
    assert "only is 'nothing'" in answer.err
