"""Measurements as the values of a page, and the page that `widemargin measure` writes."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import Run
from widemargin.certify.bracket import Bracket
from widemargin.cli import arms, tables
from widemargin.margins import Measurement
from widemargin.report.check import check


def measurement(n: int = 5) -> Measurement:
    margins = torch.tensor([0.5, -1.0, math.nan, 0.1234567891, 2.0])[:n]
    return Measurement(
        margins={"input": margins, "fc": margins.abs()},
        output=margins,
        labels=torch.tensor([0, 1, 2, 0, 1])[:n],
        predictions=torch.tensor([0, 2, 2, 0, 1])[:n],
        settings={"p": 2.0},
    )


def pixels(uri: Any) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(str(uri).partition(",")[2]))))


def test_an_arm_holds_the_margins_and_the_hardest_samples() -> None:
    made = arms.arm("a", measurement(), classes=("zero", "1", "two"), hardest=3, label="A")
    check({"title": "t", "arms": [json.loads(json.dumps(made))]})
    assert made["margins"]["input"] == [0.5, -1.0, None, 0.123457, 2.0]
    assert (made["samples"], made["accuracy"], made["label"]) == (5, 0.8, "A")
    assert made["hardest"] == [
        {"index": 1, "label": "1", "prediction": "2 two", "margin": -1.0},
        {"index": 3, "label": "0 zero", "prediction": "0 zero", "margin": 0.123457},
        {"index": 0, "label": "0 zero", "prediction": "0 zero", "margin": 0.5},
    ]


def test_images_are_shown_in_their_range() -> None:
    x = torch.linspace(-1, 1, 5 * 3 * 2 * 2, dtype=torch.float64).reshape(5, 3, 2, 2)
    within = arms.arm("a", measurement(), inputs=x, bounds=(-1.0, 1.0), hardest=1)["hardest"][0]["image"]
    np.testing.assert_array_equal(pixels(within), ((x[1] + 1) / 2 * 255).round().numpy().transpose(1, 2, 0))
    spread = arms.arm("a", measurement(), inputs=x, hardest=1)["hardest"][0]["image"]
    assert (pixels(spread).min(), pixels(spread).max()) == (0, 255)
    flat = arms.arm("a", measurement(), inputs=torch.full((5, 1, 2, 2), 7.0), hardest=1)["hardest"][0]["image"]
    assert pixels(flat).shape == (2, 2)


@pytest.mark.parametrize("shape", [(5, 4), (5, 2, 4, 4), (5, 3)])
def test_what_is_no_image_is_not_shown(shape: tuple[int, ...]) -> None:
    assert "image" not in arms.arm("a", measurement(), inputs=torch.zeros(shape), hardest=1)["hardest"][0]


def test_rows_lose_what_json_does_not_know() -> None:
    rows = arms.history([{"epoch": 1, "split": "train", "loss": math.inf, "accuracy": 0.5, "distance at x": math.nan}])
    assert rows == [{"epoch": 1, "split": "train", "loss": None, "accuracy": 0.5, "distance at x": None}]


def test_norms_have_names() -> None:
    assert [tables.norm(p) for p in (1.0, 2.0, 1.5, math.inf)] == ["l_1", "l_2", "l_1.5", "l_inf"]


def test_measure_writes_a_page(run: Run) -> None:
    answer = run(
        "measure", "--model", "sokolic-mlp", "--set", "inputs=64", "--data", "digits", "--at", "input", "--out", "there"
    )
    assert answer.code == 0, answer.err
    assert "wrote there/page.html" in answer.out
    page = Path("there/page.html").read_text(encoding="utf-8")
    assert "<h1>sokolic-mlp on digits</h1>" in page
    assert "360 samples of its test set" in page
    assert page.count("data:image/png;base64,") == 24


def test_measure_without_the_report_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "altair" else find(name))
    answer = run("measure", "--model", "toy-mlp", "--data", "toy", "--out", "there")
    assert answer.code == 0, answer.err
    assert "no page.html, which needs more packages: pip install 'widemargin[report]'" in answer.err
    assert not Path("there/page.html").exists()
    assert Path("there/summary.json").exists()


def test_a_bracket_keeps_its_bounds_when_it_is_rounded() -> None:
    lower = torch.tensor([0.12345678, 0.0, 0.9999999, 0.2], dtype=torch.float64)
    upper = torch.tensor([0.12345679, 0.0, math.inf, 0.4], dtype=torch.float64)
    found = Bracket(
        lower=lower,
        upper=upper,
        linearized=torch.tensor([0.1, -0.2, math.nan, 0.3], dtype=torch.float64),
        found=upper.isfinite(),
        lower_by=("none",) * 4,
        p=2.0,
        notes=(),
    )
    made = arms.bracket(found, points=5)
    check({"title": "t", "arms": [{"name": "a", "bracket": json.loads(json.dumps(made))}]})
    assert made["upper"][2] is None
    assert made["linearized"] == [0.1, -0.2, None, 0.3]
    assert all(low <= true for low, true in zip(made["lower"], lower.tolist(), strict=True))
    assert made["upper"][0] >= float(upper[0])
    assert [point["epsilon"] for point in made["band"]] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert [point["certified"] for point in made["band"]] == [0.75, 0.75, 0.5, 0.25, 0.25]
    assert [point["attacked"] for point in made["band"]] == [0.75, 0.75, 0.5, 0.5, 0.25]
