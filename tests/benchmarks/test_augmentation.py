"""The benchmark of augmented images: rows of a short run, and gains by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import augmentation
from augmentation import Task
from widemargin.data import Samples


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random images in the place of CIFAR-10 and MNIST."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(60, 3, 32, 32, generator=generator), torch.arange(60) % 10
    monkeypatch.setattr(augmentation, "load_images", lambda *_: (Samples(x[:40], y[:40]), Samples(x[40:], y[40:])))
    right = Task(data="cifar10", train=30, steps=9, networks=("cnn",), mirror=True)
    monkeypatch.setattr(augmentation, "TASKS", {"right": right, "flipped": replace(right, flips=0.4)})
    for name, value in (("TEST", 20), ("BATCH", 10)):
        monkeypatch.setattr(augmentation, name, value)
    augmentation.samples.cache_clear()


def test_images_are_small_and_standardised_by_the_training_images() -> None:
    train, test = augmentation.samples("right", 0, None)
    assert (train.x.shape, test.x.shape) == ((30, 3, 16, 16), (20, 3, 16, 16))
    torch.testing.assert_close(train.x.mean(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(train.x.std(dim=(0, 2, 3)), torch.ones(3), rtol=0, atol=1e-5)
    assert not torch.equal(train.x, augmentation.samples("right", 1, None)[0].x)
    flipped, _ = augmentation.samples("flipped", 0, None)
    assert (flipped.y != train.y).sum() == 12
    assert torch.equal(flipped.x, train.x)


def test_a_short_run_differs_by_crops_and_by_strength() -> None:
    jobs = [(False, 1.0), (True, 1.0), (True, None), (True, 0.0)]
    rows: list[dict[str, Any]] = []
    for augmented, strength in jobs:
        job = {"seed": 0, "task": "right", "network": "cnn", "augmented": augmented, "strength": strength}
        rows += augmentation.run(job, "cpu", None)
    assert all(row.keys() == {"test", "train", "distance of right answers"} for row in rows)
    assert len({str(row) for row in rows}) == len(jobs)


def test_gains_are_over_cross_entropy_of_the_same_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same: dict[str, Any] = {"task": "right", "network": "cnn", "augmented": True, "train": 0.75, "commit": "c"}
    accuracy = {(0.0, 0): 0.5, (0.0, 1): 0.6, (0.0, 2): 0.7, (None, 0): 0.4, (None, 1): 0.6, (None, 2): 0.6}
    rows = [
        {**same, "strength": strength, "seed": seed, "test": value, "distance of right answers": 2 if strength else 1}
        for (strength, seed), value in accuracy.items()
    ]
    rows.append({**rows[-1], "strength": 0.1, "seed": 0})  # two seeds are missing
    augmentation.summarise(rows, tmp_path / "out.json")
    (found,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert found["strength"] is None
    assert found["gain"] == pytest.approx(-20 / 3)
    assert found["cross-entropy"] == pytest.approx(60)
    assert found["distance ratio"] == pytest.approx(1.0)
    assert "| right | cnn | yes | 60.0 % | −6.7 ± 5.8 (1.00) |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no rows"):
        augmentation.summarise([], tmp_path / "none.json")
