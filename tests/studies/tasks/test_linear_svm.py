"""Separators by training and by an exact solver."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from widemargin.studies.tasks import linear_svm
from widemargin.studies.trial import Trial, TrialContext

pytestmark = pytest.mark.usefixtures("untyped")
LOSS = {"name": "large-margin", "p": 2.0, "classes": 1}


def _trial(**changes: Any) -> Trial:
    settings = {
        "data": {"name": "gaussian", "dimensions": 2, "samples": 16},
        "loss": LOSS,
        "lr": 0.3,
        "steps": 100,
        "close": 0.05,
        **changes,
    }
    return Trial(
        task="linear-svm", version=1, stage="final", settings=settings, seed=1, study="E17", arm="a", scale="smoke"
    )


def test_training_finds_the_separator() -> None:
    row = linear_svm.run(_trial(), TrialContext())
    assert row["cosine"] > 0.99
    assert 0.9 < row["share"] <= 1 + 1e-6
    assert row["share"] == pytest.approx(row["margin"] / row["widest"])


def test_two_points_have_the_plane_between_them() -> None:
    x = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    settings = {"loss": LOSS, "lr": 0.3, "steps": 150, "close": 0.02}
    w, b = linear_svm.separator(x, torch.tensor([0, 1]), settings, seed=0)
    assert float(w[0] / w.norm()) > 0.98  # of the margin 1, so much was reached
    assert float(w[0] + b) == pytest.approx(0.0, abs=0.05 * float(w[0]))


def test_digits_of_two_classes_and_settings_that_are_none() -> None:
    x, y = linear_svm._samples({"name": "digits", "classes": [3, 8], "samples": 30}, 0, TrialContext())
    assert x.shape == (30, 64)
    assert set(y.tolist()) == {0, 1}
    with pytest.raises(ValueError, match="'gamma'"):
        linear_svm.run(_trial(gamma=1), TrialContext())
