"""Devices of a training, and Lightning Fabric."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from widemargin.training import Devices
from widemargin.training.config import fabric, quiet

CPU = Devices(accelerator="cpu")


def test_one_device_by_its_name() -> None:
    assert Devices.of("cpu") == CPU
    assert Devices.of("cuda:1") == Devices(accelerator="cuda", count=[1])


def test_lightnings_own_fabric_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    monkeypatch.setitem(sys.modules, "lightning.fabric", SimpleNamespace(Fabric=lambda **settings: settings))
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace(__path__=[]))
    assert fabric(CPU)["accelerator"] == "cpu"


def test_without_either_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    with pytest.raises(ImportError, match=r"lightning_fabric.*pip install 'widemargin\[train\]'"):
        fabric(CPU)


def test_quiet_is_for_a_while() -> None:
    logger = logging.getLogger("lightning_fabric")
    before = logger.level
    with quiet():
        assert not logger.isEnabledFor(logging.INFO)
        assert logger.isEnabledFor(logging.WARNING)
    assert logger.level == before
