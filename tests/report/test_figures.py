from __future__ import annotations

import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from report.synthetic import result
from widemargin.report import figures
from widemargin.report.statistics import density, statistics
from widemargin.report.theme import PALETTE

FULL: Any = result()
HOSTILE = ("<script>alert(1)</script>", '"><img onerror=alert(1)>', "a.b[0]['c'] & Σ")

CHARTS: dict[str, Callable[[Any], Any]] = {
    "margins": lambda r: figures.margins(r, "input"),
    "under attack": figures.under_attack,
    "distance": figures.over_training,
    "accuracy": lambda r: figures.over_training(r, "accuracy"),
    "loss": lambda r: figures.over_training(r, "loss"),
    "data": figures.over_data,
}


def tables_of(chart: Any) -> list[list[dict[str, Any]]]:
    """Every set of rows that the chart draws, the largest first."""
    spec = chart.to_dict()
    found = [part["data"] for part in (spec, *spec["layer"]) if "data" in part]
    rows = [data["values"] if "values" in data else spec["datasets"][data["name"]] for data in found]
    return sorted(rows, key=len, reverse=True)


def test_margins_draws_the_density_and_the_mean() -> None:
    rows = tables_of(figures.margins(FULL, "conv1"))
    margins = FULL["arms"][1]["margins"]["conv1"]
    curve = [(row["margin"], row["density"]) for row in rows[0] if row["arm"] == "hinge"]
    np.testing.assert_allclose(curve, density(margins), rtol=1e-3)
    means = [row["mean"] for group in rows for row in group if row.get("arm") == "hinge" and "mean" in row]
    assert means == [pytest.approx(statistics(margins).mean, rel=1e-3)]


def test_curves_draw_their_numbers() -> None:
    rows = tables_of(figures.under_attack(FULL))[0]
    assert [(r["epsilon"], r["accuracy"]) for r in rows if r["arm"] == "ODN"] == [
        (point["epsilon"], point["accuracy"]) for point in FULL["arms"][2]["curve"]
    ]
    rows = tables_of(figures.over_training(FULL, "distance", "fc1"))[0]
    found = [r["value"] for r in rows if r["arm"] == "ODN" and r["samples"] == "training"]
    expected = [r["distance at fc1"] for r in FULL["arms"][2]["history"] if r["split"] == "train"]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    renamed: Any = {**FULL, "validation": "test"}
    for shown, name in ((FULL, "validation"), (renamed, "test")):
        chart = figures.over_training(shown, "distance", "fc1")
        assert {row["samples"] for row in tables_of(chart)[0]} == {"training", name}
        assert chart.to_dict()["layer"][0]["encoding"]["strokeDash"]["scale"]["domain"] == [name, "training"]


def test_seeds_draw_a_band_of_one_standard_deviation() -> None:
    curves = [[{"epsilon": 0.0, "accuracy": a}, {"epsilon": 0.1, "accuracy": a / 2}] for a in (0.8, 0.9, 1.0)]
    seeds = [{"seed": k, "accuracy": 0.9, "margin": 1.0, "curve": curve} for k, curve in enumerate(curves)]
    arms = [{"name": name, "curve": curves[1], "seeds": seeds} for name in ("a", "b")]
    chart = figures.under_attack({"title": "t", "arms": arms})  # type: ignore[typeddict-item]
    (rows, *_) = tables_of(chart)
    assert [(row["low"], row["high"]) for row in rows[:2]] == [(0.8, 1.0), (0.4, 0.5)]
    assert sum(layer["mark"]["type"] == "area" for layer in chart.to_dict()["layer"]) == 1


def test_a_place_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="place is 'conv9', expected one of 'input', 'conv1', 'fc1'"):
        figures.margins(FULL, "conv9")


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_saved_with_names_as_text(name: str, tmp_path: Path) -> None:
    chart = CHARTS[name](result(HOSTILE))
    path = figures.save(chart, tmp_path / "chart.svg")
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    shown = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert set(HOSTILE) <= shown
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "g", "path", "text", "rect", "line", "defs", "clipPath", "title", "style"
    }  # fmt: skip
    assert PALETTE["light"][0] in path.read_text(encoding="utf-8")


def test_a_png_is_as_large_as_its_scale_says(tmp_path: Path) -> None:
    small = figures.save(figures.under_attack(FULL), tmp_path / "a.png", scale=1)
    large = figures.save(figures.under_attack(FULL), tmp_path / "b.png", mode="dark", scale=2)
    first, second = (Image.open(io.BytesIO(path.read_bytes())) for path in (small, large))
    assert np.allclose(second.size, 2 * np.array(first.size), atol=2)
    assert second.convert("RGB").getpixel((3, 3)) == tuple(bytes.fromhex("1a1c22"))
    assert first.convert("RGB").getpixel((3, 3)) == (255, 255, 255)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"chart.pdf', expected a name that ends in .svg or .png"):
        figures.save(figures.under_attack(FULL), tmp_path / "chart.pdf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "call"), [("altair", figures.under_attack), ("vl_convert", figures.save)])
def test_a_missing_package_is_told_with_its_extra(
    module: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = figures.under_attack(FULL)
    monkeypatch.setitem(sys.modules, module, None)
    sentence = re.escape(f"{module} is not installed: pip install 'widemargin[report]'")
    with pytest.raises(ImportError, match=sentence):
        call(*([FULL] if module == "altair" else [chart, "a.svg"]))
