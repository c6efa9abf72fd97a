"""The page of explanations, from plain values."""

from __future__ import annotations

from typing import Any

import pytest

from widemargin.report import explanation


def values(**more: Any) -> Any:
    item = {
        "position": 7,
        "decision": "a",
        "other": None,
        "sentences": ["One.", "Two.", "Three."],
        "pictures": [],
        "changes": [{"name": "<b>", "before": 1.0, "after": 2.0, "change": 1.0}],
        "tokens": False,
        "certified": 0.0,
        "linearized": None,
        "distance": None,
        "scores": [{"name": "a", "before": 1.0, "after": 0.5}],
    }
    return {"title": "T", "items": [item | more], "notes": ["a < b"], "settings": {}, "versions": {}, "hardware": {}}


def test_values_are_text_and_missing_numbers_dashes() -> None:
    page = explanation.render(values())
    assert "&lt;b&gt;" in page
    assert "a &lt; b" in page
    assert "<td>–</td>" in page
    assert "<script" not in page


def test_a_picture_that_is_no_png_is_refused() -> None:
    with pytest.raises(ValueError, match="image"):
        explanation.render(values(pictures=[{"name": "a", "image": "https://example.org/a.png"}]))
