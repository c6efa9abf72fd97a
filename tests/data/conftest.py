from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds data that happen to lie on the machine, nor the hub."""
    monkeypatch.delenv("WIDEMARGIN_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)
