"""Times of steps."""

from __future__ import annotations

import time
from typing import Any

import pytest

from widemargin import losses
from widemargin.studies.tasks import step_time
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import margin_backward

pytestmark = pytest.mark.usefixtures("untyped")


def _run(**changes: Any) -> dict[str, Any]:
    settings = {
        "shape": [1, 8, 8],
        "classes": 10,
        "network": {"name": "elsayed-mnist-cnn", "size": 8, "widths": (2, 3), "hidden": (6,)},
        "loss": {"name": "large-margin", "classes": 1},
        "batch": 8,
        "precision": "float32",
        "warm": 1,
        "repeats": 3,
        **changes,
    }
    trial = Trial(
        task="step-time", version=1, stage="final", settings=settings, seed=0, study="E16", arm="a", scale="q"
    )
    return step_time.run(trial, TrialContext())


def test_the_slower_loss_has_the_larger_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still but for the steps: 6 ms for a margin step, 2 for the other."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow(*arguments: Any) -> Any:
        now[0] += 0.006
        return margin_backward(*arguments)

    entropy = losses.CrossEntropy.__call__

    def fast(*arguments: Any) -> Any:
        now[0] += 0.002
        return entropy(*arguments)

    monkeypatch.setattr(step_time, "margin_backward", slow)
    monkeypatch.setattr(losses.CrossEntropy, "__call__", fast)
    row = _run()
    assert row["ratio"] == pytest.approx(3.0)
    assert (row["margin ms"], row["cross-entropy ms"]) == (pytest.approx(6.0), pytest.approx(2.0))
    assert row["way"] == "two backwards: layers so small that the split would take longer"


def test_the_way_is_told_and_settings_are_checked() -> None:
    row = _run(loss={"name": "large-margin", "classes": "all", "cross_entropy": 1.0}, precision="bfloat16")
    assert row["ratio"] > 0
    assert row["way"].startswith("two backwards")
    with pytest.raises(ValueError, match="precision is 'float16'"):
        _run(precision="float16")
    with pytest.raises(ValueError, match="'epochs'"):
        _run(epochs=3)
