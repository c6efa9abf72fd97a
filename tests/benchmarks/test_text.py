"""The benchmark on text: its texts, a short run, and gains by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import text


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LIBRARIES", ("numpy", "scipy"))
    monkeypatch.setattr(text, "TEXTS", 40)
    monkeypatch.setattr(text, "TRAIN", 40)
    monkeypatch.setattr(text, "TEST", 20)
    text.texts.cache_clear()


@pytest.mark.usefixtures("small")
def test_texts_are_numbers_of_common_words() -> None:
    assert all("scipy" not in word for words in text.texts("scipy") for word in words)
    train, test = text.samples(0, 0.0)
    assert (train.x.shape, test.x.shape) == ((40, text.WORDS), (20, text.WORDS))
    assert set(train.y.tolist()) == {0, 1}
    assert 1 not in train.x  # all words of the few training texts are common
    assert 1 in test.x
    flipped, _ = text.samples(0, 0.4)
    assert torch.equal(flipped.x, train.x)
    assert 10 <= int((flipped.y != train.y).sum()) <= 22


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("network", text.NETWORKS)
def test_a_short_run(network: str) -> None:
    job = {"network": network, "loss": "WideMargin", "lr": 1e-3, "flips": 0.0, "seed": 0, "epochs": 1}
    (row,) = text.run(job, "cpu", None)
    assert row.keys() == {"test", "train", "median distance"}


def test_gains_are_over_cross_entropy_of_the_same_seed(tmp_path: Path) -> None:
    same = {"network": "LSTM", "lr": 1e-3, "flips": 0.4, "commit": "c", "versions": {}, "hardware": {}}
    accuracy = {"cross-entropy": (0.5, 0.6, 0.7), "WideMargin": (0.6, 0.6, 0.9)}
    rows = [
        {**same, "loss": loss, "seed": seed, "test": value, "median distance": 2.0 if loss == "WideMargin" else 1.0}
        for loss, values in accuracy.items()
        for seed, value in enumerate(values)
    ]
    text.summarise(rows, tmp_path / "out.json")
    (found,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert found["gain"] == pytest.approx(10)
    assert found["deviation"] == pytest.approx(10)
    assert found["cross-entropy"] == pytest.approx(60)
    assert (found["median distance"], found["median distance of cross-entropy"]) == (2.0, 1.0)
    with pytest.raises(SystemExit, match="no rows"):
        text.summarise([], tmp_path / "out.json")
