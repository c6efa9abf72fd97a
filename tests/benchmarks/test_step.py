"""The program benchmarks/step.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import step


def test_rows_are_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    step.main(["--only", "sokolic's MLP", "--rounds", "1", "--out", str(path)])
    assert "Jacobian regularizer, a backward per class" in capsys.readouterr().out
    (row,) = json.loads(path.read_text())["rows"]
    assert row["ratio"]["Jacobian regularizer, a backward per class"] == 1


def test_rows_left_out_for_lack_of_time_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("step_cost.rows.time.monotonic", iter(range(0, 10**6, 100)).__next__)
    step.main(["--only", "sokolic", "--minutes", "0.1", "--out", str(tmp_path / "bench.json")])
    assert "Jacobian, sokolic's MLP, Jacobian, sokolic's CNN" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--only", "nothing"), ("--rounds", "0"), ("--minutes", "-1")])
def test_bad_options(option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        step.main([option, value, "--out", str(tmp_path / "bench.json")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert option[2:] in error
    assert value in error
