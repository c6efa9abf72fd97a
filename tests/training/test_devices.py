from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from widemargin.training import devices

SETTINGS: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "strategy": "auto", "precision": None}


def test_lightnings_own_fabric_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    monkeypatch.setitem(sys.modules, "lightning.fabric", SimpleNamespace(Fabric=lambda **settings: settings))
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace(__path__=[]))
    assert devices.fabric(**SETTINGS)["accelerator"] == "cpu"


def test_without_either_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    with pytest.raises(ImportError, match=r"lightning_fabric.*pip install 'widemargin\[train\]'"):
        devices.fabric(**SETTINGS)


def test_quiet_is_for_a_while() -> None:
    logger = logging.getLogger("lightning_fabric")
    before = logger.level
    with devices.quiet():
        assert not logger.isEnabledFor(logging.INFO)
        assert logger.isEnabledFor(logging.WARNING)
    assert logger.level == before
