from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from report.synthetic import picture
from widemargin.report import figures, planes
from widemargin.report.check import check_picture
from widemargin.report.theme import FILLS, PALETTE

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>')


@pytest.mark.parametrize("raster", [False, True])
def test_a_panel_is_saved_with_its_title_caption_and_legend(tmp_path: Path, raster: bool) -> None:
    shown = picture(HOSTILE, raster=raster)
    path = figures.save(planes.figure(shown), tmp_path / "picture.svg")
    said = {element.text for element in ElementTree.parse(path).iter() if element.text}
    assert {*HOSTILE, "A square", "In two halves."} <= said
    fills = {element.get("fill") for element in ElementTree.parse(path).iter()}
    assert {FILLS["light"][0], FILLS["light"][1], PALETTE["light"][0], PALETTE["light"][1]} <= fills


def test_panels_stand_beside_each_other(tmp_path: Path) -> None:
    shown = picture(("a", "b"))
    shown["panels"].append({**shown["panels"][0], "title": "Another", "text": "word " * 40})
    path = figures.save(planes.figure(shown), tmp_path / "picture.svg", mode="dark")
    said = [element.text for element in ElementTree.parse(path).iter() if element.text]
    assert {"A square", "Another", "A picture"} <= set(said)
    assert max(len(text) for text in said) < 90  # captions are wrapped


def test_scales_are_the_same_along_both_axes() -> None:
    shown = picture(("a", "b"))["panels"][0]
    shown["box"] = [0.0, 2.0, -0.5, 0.5]
    chart = planes.chart(shown, width=400).to_dict()
    assert (chart["width"], chart["height"]) == (400, 200)


def change(path: list[Any], value: Any) -> dict[str, Any]:
    shown = picture(("a", "b"))
    inside: Any = shown
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return shown


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["panels"], [], "picture.panels is empty"),
        (["titles"], 1, "^picture .*'titles'"),
        (["panels", 0], 3, r"^picture.panels\[0\] is 3"),
        (["panels", 0, "box"], [0, 1, 1, 0], r"picture.panels\[0\].box is \[0, 1, 1, 0\]"),
        (["panels", 0, "boundary", 0], [0.0, 1.0], r"boundary\[0\] is \[0.0, 1.0\]"),
        (["panels", 0, "parts", 0, "label"], 2, r"parts\[0\].label is 2"),
        (["panels", 0, "parts", 0, "corners"], [[0.0, float("nan")]], r"parts\[0\].corners\[0\]\[1\] is nan"),
        (["panels", 0, "points", 0, "x"], "1", r"points\[0\].x is '1'"),
        (["panels", 0, "points", 0, "image"], "http://x", r"points\[0\].image"),
        (["panels", 0, "runs"], [[0.0, 1.0, 0.0, 1.0, 7]], r"runs\[0\].* is 7"),
        (["panels", 0, "ellipses"], [[[0.0]]], r"ellipses\[0\]\[0\] is \[0.0\]"),
    ],
)
def test_what_is_no_picture_is_told(path: list[Any], value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_picture(change(path, value))


def test_a_missing_entry_is_told() -> None:
    shown = picture(("a", "b"))
    del shown["panels"][0]["classes"]
    with pytest.raises(ValueError, match=r"picture.panels\[0\] has no 'classes', expected title, text, box, classes"):
        check_picture(shown)
