"""Costs of steps."""

from __future__ import annotations

import time
from typing import Any

import pytest

from widemargin import losses
from widemargin.studies.tasks import step_cost
from widemargin.studies.trial import Trial, TrialContext

pytestmark = pytest.mark.usefixtures("untyped")


def _run(**changes: Any) -> dict[str, Any]:
    settings = {
        "shape": [1, 8, 8],
        "classes": 10,
        "network": {"name": "elsayed-mnist-cnn", "size": 8, "widths": (2, 3), "hidden": (6,)},
        "loss": {"name": "wide-margin"},
        "batch": 8,
        "precision": "float32",
        "warm": 1,
        "repeats": 3,
        **changes,
    }
    trial = Trial(task="step-cost", version=1, stage="final", settings=settings, seed=0, study="W5", arm="a", scale="q")
    return step_cost.run(trial, TrialContext())


def test_the_slower_loss_has_the_larger_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still but for the losses: 6 ms for one, 2 for the other."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slowly(kind: type, seconds: float) -> None:
        whole = kind.__call__

        def call(*arguments: Any) -> Any:
            now[0] += seconds
            return whole(*arguments)

        monkeypatch.setattr(kind, "__call__", call)

    slowly(losses.WideMargin, 0.006)
    slowly(losses.CrossEntropy, 0.002)
    row = _run()
    assert row["ratio"] == pytest.approx(3.0)
    assert (row["ms"], row["cross-entropy ms"]) == (pytest.approx(6.0), pytest.approx(2.0))
    assert "memory ratio" not in row  # on a GPU only


def test_a_graph_and_regularizers_can_be_asked_for_anywhere_and_settings_are_checked() -> None:
    row = _run(
        loss={"name": "cross-entropy"},
        regularizers=[{"name": "jacobian-frobenius"}],
        precision="bfloat16",
        cuda_graph=True,
    )
    assert row["ratio"] > 0
    assert row["CUDA graph"] is False
    with pytest.raises(ValueError, match="precision is 'float16'"):
        _run(precision="float16")
    with pytest.raises(ValueError, match="'epochs'"):
        _run(epochs=3)
