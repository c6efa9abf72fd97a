"""The benchmark of augmented images: rows of a short run, and gains by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import augmentation
from widemargin.data import Samples


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random images in the place of CIFAR-10."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(60, 3, 32, 32, generator=generator), torch.arange(60) % 10
    monkeypatch.setattr(augmentation, "load_images", lambda *_: (Samples(x[:40], y[:40]), Samples(x[40:], y[40:])))
    for name, value in (("TRAIN", 30), ("TEST", 20), ("BATCH", 10)):
        monkeypatch.setattr(augmentation, name, value)
    augmentation.samples.cache_clear()


def test_images_are_small_and_standardised_by_the_training_images() -> None:
    train, test = augmentation.samples(0, None)
    assert (train.x.shape, test.x.shape) == ((30, 3, 16, 16), (20, 3, 16, 16))
    torch.testing.assert_close(train.x.mean(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(train.x.std(dim=(0, 2, 3)), torch.ones(3), rtol=0, atol=1e-5)
    assert not torch.equal(train.x, augmentation.samples(1, None)[0].x)


def test_a_short_run_differs_by_the_crops_and_flips() -> None:
    job = {"seed": 0, "network": "cnn", "strength": 1.0, "steps": 3}
    (plain,), (changed,) = (list(augmentation.run({**job, "augmented": is_so}, "cpu", None)) for is_so in (False, True))
    assert plain.keys() == {"test", "train", "distance of right answers"}
    assert plain != changed


def test_gains_are_over_cross_entropy_of_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(augmentation, "STRENGTHS", (0.0, 0.3))
    same: dict[str, Any] = {"network": "cnn", "augmented": True, "steps": 5, "train": 0.75, "commit": "c"}
    accuracy = {(0.0, 0): 0.5, (0.0, 1): 0.6, (0.0, 2): 0.7, (0.3, 0): 0.4, (0.3, 1): 0.6, (0.3, 2): 0.6}
    rows = [
        {**same, "strength": strength, "seed": seed, "test": value, "distance of right answers": 1 + 2 * strength}
        for (strength, seed), value in accuracy.items()
    ]
    augmentation.summarise(rows, tmp_path / "out.json")
    (found,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert found["gain"] == pytest.approx(-20 / 3)
    assert found["cross-entropy"] == pytest.approx(60)
    assert found["distance ratio"] == pytest.approx(1.6)
    assert "| cnn | yes | 60.0 % | −6.7 ± 5.8 (1.6) |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no rows"):
        augmentation.summarise([], tmp_path / "none.json")
