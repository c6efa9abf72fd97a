from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import widemargin as wm
from training.cases import network, samples
from widemargin import losses


class Writer:
    def __init__(self, folder: str) -> None:
        self.folder, self.points, self.closed = folder, dict[tuple[str, int], float](), False
        made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.points[name, step] = value

    def close(self) -> None:
        self.closed = True


made: list[Writer] = []
SETTINGS: dict[str, Any] = {"loss": losses.CrossEntropy(), "epochs": 2, "batch_size": 20, "accelerator": "cpu"}


def test_every_number_of_the_history_is_a_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    result = wm.fit(network(), samples(), validation=samples(9), tensorboard=tmp_path, **SETTINGS)
    (writer,) = made
    assert (writer.folder, writer.closed) == (str(tmp_path), True)
    expected = {
        (f"{row['split']}/{name}", row["step"]): value
        for row in result.history.rows
        for name, value in row.items()
        if name not in ("split", "step", "epoch")
    }
    assert writer.points == expected
    assert ("validation/distance at input", 6) in expected


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'widemargin\[tensorboard\]'"):
        wm.fit(network(), samples(), tensorboard=tmp_path, **SETTINGS)
