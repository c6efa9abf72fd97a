"""benchmarks/label_issues.py: flips of both kinds, and cleanlab's scores from stored probabilities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import label_issues
from widemargin.data import Samples


def corners(count: int = 60) -> Samples:
    """Four classes in the corners of a rectangle: 0 and 1 are close, 2 and 3 are."""
    y = torch.arange(count) % 4
    centres = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 9.0], [1.0, 9.0]])
    return Samples(centres[y] + 0.1 * torch.randn(count, 2, generator=torch.Generator().manual_seed(0)), y)


@pytest.mark.parametrize("kind", label_issues.KINDS)
def test_exactly_so_many_labels_are_flipped(kind: str) -> None:
    samples = corners()
    noisy = label_issues.flipped(samples, kind, 0.2, 0, 4)
    changed = noisy.y != samples.y
    assert int(changed.sum()) == 12
    if kind == "similar":
        assert torch.equal(noisy.y[changed], torch.tensor([1, 0, 3, 2])[samples.y[changed]])


def test_cleanlab_scores_the_stored_probabilities(tmp_path: Path) -> None:
    pytest.importorskip("cleanlab")
    rng = torch.Generator().manual_seed(0)
    samples = corners()
    noisy = label_issues.flipped(samples, "any", 0.2, 0, 4)
    wrong = noisy.y != samples.y
    predicted = (3.0 * torch.eye(4)[samples.y] + torch.randn(60, 4, generator=rng)).double().softmax(dim=1)
    row = {"task": "iris", "kind": "any", "rate": 0.2, "epochs": 1, "seed": 0, "accuracy": 0.9, "expected": [0.1, 0.2]}
    row |= {"auc": {"label_issues": 0.99, "label_issues, folds=1": 0.9}, "right suggestions": 0.5, "seconds": 1.0}
    row |= {"suspects": {"precision": 0.5, "recall": 0.5}, "seconds, folds=1": 1.0, "commit": "none", "versions": {}}
    row |= {"hardware": {"device": "cpu"}, "arrays": label_issues.packed(noisy.y, wrong, predicted, predicted)}
    found = label_issues.with_cleanlab(row)
    label = predicted.gather(1, noisy.y[:, None]).squeeze(1)
    pairs = float((label[wrong][:, None] < label[~wrong][None]).double().mean())
    assert found["auc"]["cleanlab self_confidence"] == pytest.approx(pairs, abs=1e-6)
    assert found["auc"]["cleanlab self_confidence"] == found["auc"]["cleanlab self_confidence, averaged"]
    label_issues.summarise([row], tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["cells"][0]["best"] == pytest.approx(
        max(value for name, value in found["auc"].items() if name.startswith("cleanlab")), abs=1e-5
    )
    assert written["totals"]["best"]["cells"] == 1
