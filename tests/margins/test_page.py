"""The page of a measurement, from Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from widemargin.margins import Measurement


def measurement(count: int = 6, **more: Any) -> Measurement:
    torch.manual_seed(0)
    labels = torch.arange(count) % 3
    return Measurement(
        margins={"input": torch.randn(count)},
        output=torch.randn(count),
        labels=labels,
        predictions=labels.flip(0),
        settings={"at": ["input"], "p": 2.0, "classes": 1, "read_as": "logits"},
        **more,
    )


def test_a_result_writes_the_page_of_the_command(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    found = measurement(classes=("a", hostile, "c"))
    path = found.page(tmp_path / "out.html", inputs=torch.rand(6, 1, 4, 4), title=hostile)
    text = path.read_text(encoding="utf-8")
    assert path == tmp_path / "out.html"
    assert hostile not in text
    assert text.count("data:image/png;base64,") == 6
    assert "l₂" in text
    plain = measurement().page(str(tmp_path / "plain.html")).read_text(encoding="utf-8")
    assert "data:image/png" not in plain
    assert "<title>Margins</title>" in plain


def test_other_inputs_than_the_measured_ones_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inputs has 5 samples, but 6 were measured"):
        measurement().page(tmp_path / "out.html", inputs=torch.rand(5, 1, 4, 4))
    with pytest.raises(ValueError, match="positions"):
        measurement(knows_positions=False).page(tmp_path / "out.html", inputs=torch.rand(6, 1, 4, 4))


def test_images_are_those_of_the_positions_in_the_data(tmp_path: Path) -> None:
    images = torch.zeros(9, 1, 2, 2)
    images[3:] = torch.rand(6, 1, 2, 2)
    one = measurement(index=torch.arange(3, 9)).page(tmp_path / "one.html", inputs=images, bounds=(0.0, 1.0))
    two = measurement().page(tmp_path / "two.html", inputs=images[3:], bounds=(0.0, 1.0))
    pictures = [re.findall(r"data:image/png;base64,[^\"]+", path.read_text(encoding="utf-8")) for path in (one, two)]
    assert pictures[0] == pictures[1]
