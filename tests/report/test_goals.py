"""Goals of our own studies: met, missed or open, on pages and in counts."""

from __future__ import annotations

from typing import Any

import pytest

from report.test_studies import CLAIM, RESULT
from widemargin.report import goals, studies


@pytest.mark.parametrize(
    ("word", "measured", "side", "said"),
    [
        ("reproduced", 4.0, "at least", "goal met"),
        ("contradicted", 1.0, "at least", "goal missed"),
        ("direction holds", 1.0, "at least", "goal missed"),  # 3 − 1 is more than half of the interval, 0.87
        ("direction holds", 2.5, "at least", "open"),
        ("direction holds", 3.5, "at least", "open"),
        ("direction holds", 5.0, "at most", "goal missed"),
        ("direction holds", 3.5, "at most", "open"),
        ("inconclusive", 1.0, "at least", "open"),
        ("not run", None, "at least", "not run"),
    ],
)
def test_a_goal_is_met_missed_or_open_by_its_interval(word: str, measured: Any, side: str, said: str) -> None:
    more = {"word": word, "verdict": word, "measured": measured, "side": side, "why": "10 ± 2"}
    claim = {**CLAIM, **more, "reported": 3.0, "se": 0.2022, "seeds": 3, "dead": {}}
    own = {**RESULT, "study": "W1", "source": "widemargin, few samples", "claims": [claim], "weakest": word}
    assert goals.claim_verdict(claim, own=True) == said
    assert goals.claim_verdict(claim, own=False) == word
    text = studies.page(own)
    assert f">{said}</span>" in text
    assert "direction holds" not in text
    assert "10\u00a0±\u00a02" in text
    counted = {"goal met": "1 of 1 goals met", "not run": "not run"}.get(said, "0 of 1 goals met")
    assert goals.study_verdict(own) == counted
    assert f">{counted}</span>" in studies.scoreboard([], [own])
