"""The benchmark with rare classes: its samples, a short run, and means by hand."""

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
    assert int(test.y.bincount().min()) >= 30
    assert len(train) + len(test) == len(imbalance.read(name)[1])
    torch.testing.assert_close(train.x.mean(dim=0), torch.zeros(train.x.shape[1]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("loss", imbalance.LOSSES)
def test_a_short_run(loss: str) -> None:
    (row,) = imbalance.run({"data": "digits, 4 or 9", "loss": loss, "seed": 0, "epochs": 1}, "cpu", None)
    assert 0 <= row["balanced accuracy"] <= 1
    assert 0.5 < row["accuracy"] <= 1


def test_means_over_seeds(tmp_path: Path) -> None:
    origin = {"commit": "c", "versions": {}, "hardware": {}}
    rows = [
        {"data": data, "loss": loss, "seed": seed, "balanced accuracy": 0.5 + seed / 10, "accuracy": 0.9, **origin}
        for data in imbalance.COUNTS
        for loss in imbalance.LOSSES
        for seed in imbalance.SEEDS
    ]
    imbalance.summarise(rows, tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())["rows"]
    table = {(row["measure"], row["data"]): row for row in found}
    assert table["balanced accuracy", "digits, 8"]["WideMargin"]["mean"] == pytest.approx(70)
    assert table["balanced accuracy", "digits, 8"]["WideMargin"]["deviation"] == pytest.approx(250**0.5)
    assert table["accuracy", "digits, 8"]["cross-entropy"] == pytest.approx({"mean": 90, "deviation": 0}, abs=1e-9)
    with pytest.raises(SystemExit, match="has 4 rows, expected 5"):
        imbalance.summarise([row for row in rows if row["seed"] != 4], tmp_path / "out.json")
    with pytest.raises(SystemExit, match="no rows"):
        imbalance.summarise([], tmp_path / "out.json")
