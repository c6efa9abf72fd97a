"""Weights of `WideMargin` on many samples, here on a few."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import many_samples
from widemargin.studies.widemargin.cifar10 import NETWORKS, W4

pytestmark = pytest.mark.usefixtures("untyped")


def test_rows_are_added_to_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"name": "synthetic", "shape": [1, 8, 8], "samples": 24, "validation": 4, "standardize": True}
    measure = [{**part, "count": 24, "steps": 2} for part in W4.settings["measure"]]
    small: dict[str, Any] = {"data": data, "batch": 10, "precision": "float32", "measure": measure}
    network = {"network": {"name": "elsayed-mnist-cnn", "size": 8, "widths": (2, 3), "hidden": (6,)}}
    w4 = dataclasses.replace(W4, settings={**W4.settings, **small})
    monkeypatch.setattr(many_samples, "W4", w4)
    monkeypatch.setitem(NETWORKS, "ResNet-18", network)
    out = tmp_path / "weights.json"
    call = ["--device", "cpu", "--networks", "ResNet-18", "--epochs", "20", "--out", str(out), "--weights"]
    many_samples.main([*call, "0", "0.5"])
    many_samples.main([*call, "0"])
    written = json.loads(out.read_text())
    assert [row["weight"] for row in written["rows"]] == [0.0, 0.5, 0.0]
    first, wide, again = written["rows"]
    assert first["mean distance"] == pytest.approx(again["mean distance"])
    assert first["mean distance"] != pytest.approx(wide["mean distance"], rel=1e-6)
    assert {"validation", "accuracy", "accuracy under PGD"} <= set(wide)
    assert {"commit", "versions", "hardware"} <= set(written)
