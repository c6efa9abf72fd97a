"""What is found wrong is said, whether at once or when it is known."""

from __future__ import annotations

import pytest
import torch

from widemargin._cuda import deferred_checks
from widemargin.checks import check_finite, check_scores_and_labels

SCORES = torch.zeros(3, 4)


@pytest.fixture(params=[False, True], ids=["at once", "later"])
def is_later(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A CPU that has to be waited for, as a GPU has."""
    monkeypatch.setattr(deferred_checks, "needs_sync", lambda _: request.param)
    return bool(request.param)


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_out_of_range(is_later: bool, label: int) -> None:
    labels = torch.tensor([0, label, 3])
    if not is_later:
        with pytest.raises(ValueError, match=f"labels has {label} at index 1"):
            deferred_checks.DeferredChecks(SCORES, labels)
        return
    with deferred_checks.deferred_checks(SCORES, labels) as checks:
        assert checks.labels.min() >= 0
        assert checks.labels.max() <= 3
        assert checks.labels.tolist()[::2] == [0, 3]
        check_scores_and_labels(SCORES, labels)  # says nothing in here
        with pytest.raises(ValueError, match=f"labels has {label} at index 1"):
            checks.wait()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_not_finite(is_later: bool, value: float) -> None:
    scores, labels = SCORES.clone(), torch.tensor([0, 1, 2])
    scores[2, 1] = value
    if not is_later:
        with pytest.raises(ValueError, match="at index 2"):
            deferred_checks.DeferredChecks(scores, labels)
        return
    with deferred_checks.deferred_checks(scores, labels) as checks:
        check_finite(scores, "scores")
        with pytest.raises(ValueError, match="at index 2"):
            checks.wait()


def test_nothing_is_wrong(is_later: bool) -> None:
    labels = torch.tensor([0, 1, 3])
    large = torch.full((3, 4), 3e38)  # whose sum is infinite
    for scores in (SCORES, large):
        with deferred_checks.deferred_checks(scores, labels) as checks:
            assert torch.equal(checks.labels, labels)
            checks.wait()
    with pytest.raises(ValueError, match="index 0"):
        check_finite(torch.tensor([torch.nan]), "x")  # looked at again


def test_shapes_and_kinds_are_looked_at_at_once(is_later: bool) -> None:
    with pytest.raises(ValueError, match="labels has 2 entries"):
        deferred_checks.DeferredChecks(SCORES, torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="expected class indices"):
        deferred_checks.DeferredChecks(SCORES, torch.zeros(3))
    with pytest.raises(ValueError, match="expected -1 or 1"):
        deferred_checks.DeferredChecks(torch.zeros(3), torch.tensor([1.0, 2.0, -1.0]))
