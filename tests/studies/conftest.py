"""The task `counting` in the place of a module."""

from __future__ import annotations

from typing import Any

import pytest

from studies.tiny import Counting
from widemargin.studies import tasks


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """A task that remembers what it ran."""
    task, find = Counting(), tasks.find
    monkeypatch.setattr(tasks, "find", lambda name: task if name == "counting" else find(name))
    return task


@pytest.fixture(autouse=True)
def no_stored_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Nothing is written where the tests run."""
    monkeypatch.chdir(tmp_path)
