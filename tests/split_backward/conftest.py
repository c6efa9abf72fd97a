from __future__ import annotations

import pytest

from widemargin.split_backward import backward


@pytest.fixture(autouse=True)
def however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks of tests are so small that two backwards would be faster than the split that is tested."""
    monkeypatch.setattr(backward, "LEAST_BYTES", {})
