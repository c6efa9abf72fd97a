"""The strengths of `WideMargin` on tables: rows of a short run, and gains by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import table_strengths


def test_a_short_run_has_a_row_for_each_strength_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_strengths, "SEEDS", (0,))
    job = {"data": "iris", "network": "four layers, batch norm", "optimizer": "adam", "steps": 2}
    rows = list(table_strengths.run(job, "cpu", None))
    assert [row["strength"] for row in rows] == list(table_strengths.STRENGTHS)
    assert all(0.5 < row["separation"] <= 1 for row in rows)


def test_rows_are_standardised_by_the_training_rows_and_drawn_by_the_seed() -> None:
    train, test = table_strengths.table("gaussian shells", 0)
    assert (len(train), len(test)) == (300, 1700)
    torch.testing.assert_close(train.x.mean(dim=0), torch.zeros(6), rtol=0, atol=1e-5)
    assert not torch.equal(train.x, table_strengths.table("gaussian shells", 1)[0].x)


def test_a_table_of_a_folder_has_no_feature_that_is_constant_in_the_training_rows(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(100, 3))
    x[:, 1] = 0.0
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(100) % 2)
    train, test = table_strengths.table("own", 0, tmp_path)
    assert (train.x.shape, test.x.shape) == ((60, 2), (40, 2))


def test_gains_are_over_cross_entropy_of_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table_strengths, "STRENGTHS", (0.0, 1.0))
    same: dict[str, Any] = {"data": "iris", "network": "two layers", "optimizer": "sgd", "separation": 0.05}
    same |= {"median distance": 1.0, "rows": 60}
    same |= {"commit": "c", "versions": {}, "hardware": {}}
    accuracy = {(0.0, 0): 0.5, (0.0, 1): 0.7, (0.0, 2): 0.9, (1.0, 0): 0.6, (1.0, 1): 0.7, (1.0, 2): 0.7}
    rows = [{**same, "strength": strength, "seed": seed, "test": value} for (strength, seed), value in accuracy.items()]
    table_strengths.summarise(rows, tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    (found,) = written["rows"]
    assert written["all"] == {
        "1": pytest.approx({"settings": 1, "gain": -10 / 3, "lowest": -10 / 3, "within 1 point": 0})
    }
    assert found["gain"] == pytest.approx(100 * (0.1 + 0.0 - 0.2) / 3)
    assert found["cross-entropy"] == pytest.approx(70)
    assert "| iris | 60 | 0.05 | −3.3 (−3.3) | 1.00 |" in capsys.readouterr().out
