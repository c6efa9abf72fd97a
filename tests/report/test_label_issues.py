"""The page of label issues: every value is escaped, no script runs, and images are PNGs alone."""

from __future__ import annotations

from typing import Any

import pytest

from widemargin.report import label_issues

HOSTILE = ("<script>alert(1)</script>", "</script>", '"><img src=x onerror=alert(1)>')


def values(**more: Any) -> Any:
    item = {"index": 3, "given": HOSTILE[0], "suggested": HOSTILE[2], "margin": -2.5, "wrong": 0.97}
    return {
        "title": HOSTILE[1],
        "samples": 100,
        "suspects": 1,
        "expected precision": [0.5, 0.9],
        "expected share": [0.01, 0.02],
        "items": [{**item, "image": None, "values": [HOSTILE[0]]}],
        "columns": [HOSTILE[2]],
        "hidden columns": 3,
        "pairs": [{"given": HOSTILE[0], "suggested": "b", "count": 1}],
        "precision": [{"count": 10, "precision": [0.3, 0.4]}],
        "settings": {"network": HOSTILE[0]},
        **more,
    }


@pytest.mark.parametrize("columns", [[HOSTILE[2]], []])
def test_values_are_escaped_and_nothing_runs(columns: list[str]) -> None:
    text = label_issues.render(values(columns=columns))
    assert not any(bad in text for bad in ("<script", "<img src=x"))
    assert "&lt;script&gt;alert(1)" in text
    assert "default-src &#39;none&#39;" in text
    assert "script-src" not in text
    assert "50.0 % to 90.0 %" in text


def test_no_suspects() -> None:
    text = label_issues.render(values(suspects=0, pairs=[], **{"expected precision": None}))
    assert "None of the 100 labels" in text
    assert "Confused classes" not in text


def test_only_pngs_are_images() -> None:
    bad = values()
    bad["items"][0]["image"] = "https://example.org/x.png"
    with pytest.raises(ValueError, match="image"):
        label_issues.render(bad)
