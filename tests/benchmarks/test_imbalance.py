"""The benchmark with a rare class: its samples, a short run, and means by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import imbalance


@pytest.mark.parametrize("name", imbalance.COUNTS)
def test_classes_have_the_counts_and_no_sample_is_in_both_parts(name: str) -> None:
    train, test = imbalance.samples(name, 0)
    assert tuple(train.y.bincount().tolist()) == imbalance.COUNTS[name]
    assert int(test.y.bincount().min()) >= 40
    assert len(train) + len(test) == len(imbalance.read(name)[1])
    torch.testing.assert_close(train.x.mean(dim=0), torch.zeros(train.x.shape[1]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("loss", imbalance.LOSSES)
def test_a_short_run(loss: str) -> None:
    (row,) = imbalance.run({"data": "digits, 4 or 9", "loss": loss, "seed": 0, "epochs": 1}, "cpu", None)
    assert 0 <= row["balanced accuracy"] <= 1


def test_means_over_seeds(tmp_path: Path) -> None:
    same = {"data": "digits, 8", "loss": "WideMargin", "commit": "c", "versions": {}, "hardware": {}}
    rows = [{**same, "seed": seed, "balanced accuracy": value} for seed, value in enumerate((0.5, 0.6, 0.7))]
    imbalance.summarise(rows, tmp_path / "out.json")
    found = {row["data"]: row for row in json.loads((tmp_path / "out.json").read_text())["rows"]}
    assert found["digits, 8"]["WideMargin"]["mean"] == pytest.approx(60)
    assert found["digits, 8"]["WideMargin"]["deviation"] == pytest.approx(10)
    assert "cross-entropy" not in found["digits, 8"]
    with pytest.raises(SystemExit, match="no rows"):
        imbalance.summarise([], tmp_path / "out.json")
