from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from widemargin.data import load


def test_two_balanced_classes_in_the_plane_the_same_for_everyone() -> None:
    data = load("toy")
    for part in (data.train, data.test):
        assert part.x.shape == (400, 2)
        assert part.x.dtype == torch.float32
        assert part.y.bincount().tolist() == [200, 200]
    assert data.bounds is None
    assert len(data.classes) == 2
    assert not torch.equal(data.train.x, data.test.x)
    assert data.train.x[:2].tolist() == [
        pytest.approx([-1.3468, -0.2232], abs=1e-3),
        pytest.approx([1.3113, -0.241], abs=1e-3),
    ]
    assert data.test.x.mean(0).tolist() == pytest.approx([0.002, -0.0068], abs=1e-3)


def test_a_line_does_not_separate_it_and_a_curve_does() -> None:
    data = load("toy")
    train, test = (data.train.x.numpy(), data.train.y.numpy()), (data.test.x.numpy(), data.test.y.numpy())
    assert LogisticRegression().fit(*train).score(*test) < 0.93
    assert KNeighborsClassifier(5).fit(*train).score(*test) > 0.99
