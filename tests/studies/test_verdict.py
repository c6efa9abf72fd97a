"""What a comparison may be called."""

from __future__ import annotations

from typing import Any

import pytest

from widemargin.studies import verdict
from widemargin.studies.claims import Claim
from widemargin.studies.effects import Effect, Gap, MeasuredEffect, Order, Value

GAP = Gap(metric="m", arm="a", against="b")
VALUE = Value(metric="m", arm="a")
ORDER = Order(metric="m", ordered=("a", "b"))


def seeds(mean: float, error: float | None) -> MeasuredEffect:
    """Four seeds with this mean and standard error; one without."""
    return MeasuredEffect(mean=mean, sd=None if error is None else 2 * error, seeds=1 if error is None else 4)


@pytest.mark.parametrize(
    ("effect", "reported", "mean", "error", "word"),
    [
        (GAP, 2.5, 2.0, 0.3, "reproduced"),  # inside one point, and stands out
        (GAP, 2.5, 3.6, 0.3, "direction holds"),  # too large
        (GAP, 2.5, 3.6, 0.6, "reproduced"),  # two standard errors explain it
        (GAP, 2.5, 1.2, 0.3, "direction holds"),
        (GAP, 2.5, 2.0, 1.2, "not reproduced"),  # inside, but can't be told from nothing
        (GAP, 2.5, 0.0, 5.0, "not reproduced"),  # noise reproduces nothing
        (GAP, 2.5, -2.0, 0.3, "not reproduced"),
        (GAP, -2.5, -2.0, 0.3, "reproduced"),
        (GAP, -2.5, -9.0, 0.3, "direction holds"),
        (GAP, 0.1, 0.2, 0.3, "reproduced"),  # the paper's effect is itself smaller than the tolerance
        (GAP, 0.1, -0.2, 0.3, "reproduced"),
        (GAP, 0.1, -0.8, 0.3, "not reproduced"),  # but the other side is the other side
        (GAP, 0.0, 0.9, 0.1, "reproduced"),  # "no difference"
        (GAP, 0.0, 1.1, 0.1, "not reproduced"),
        (GAP, 2.5, 2.0, None, "reproduced"),  # one seed
        (GAP, 2.5, 5.0, None, "direction holds"),
        (GAP, 2.5, -0.1, None, "not reproduced"),
        (VALUE, 96.4, 95.5, 0.1, "reproduced"),
        (VALUE, 96.4, 95.0, 0.8, "reproduced"),
        (VALUE, 96.4, 95.0, 0.6, "not reproduced"),
        (VALUE, 96.4, 90.0, 5.0, "not reproduced"),  # known to ± 10: that explains nothing
        (VALUE, 96.4, 97.0, None, "reproduced"),
        (VALUE, 96.4, 99.0, None, "not reproduced"),
    ],
)
def test_a_number(effect: Effect, reported: float, mean: float, error: float | None, word: str) -> None:
    found = verdict.judge(Claim(text="", effect=effect, reported=reported), seeds(mean, error))
    assert found.word == word
    assert ("one seed" in found.why) == (error is None)


@pytest.mark.parametrize(
    ("gaps", "word"),
    [
        ([(1.0, 0.3), (2.0, 0.3)], "reproduced"),
        ([(1.2, 0.3), (0.2, 0.3)], "direction holds"),
        ([(3.0, 0.3), (-0.2, 0.3)], "direction holds"),
        ([(3.0, 0.3), (-2.0, 0.3)], "not reproduced"),
        ([(0.2, 0.3), (0.3, 0.3)], "not reproduced"),
        ([(0.2, None)], "reproduced"),
        ([(-0.2, None)], "not reproduced"),
    ],
)
def test_an_order(gaps: list[tuple[float, float | None]], word: str) -> None:
    parts = tuple((str(i), seeds(*gap)) for i, gap in enumerate(gaps))
    mean = sum(gap for gap, _ in gaps) / len(gaps)
    one = seeds(mean, gaps[0][1])
    measured = MeasuredEffect(mean=one.mean, sd=one.sd, seeds=one.seeds, parts=parts)
    assert verdict.judge(Claim(text="", effect=ORDER), measured).word == word


def test_only_paper_scale_says_reproduced_alone() -> None:
    found = verdict.Verdict(word="reproduced", why="")
    assert found.at("paper") == "reproduced"
    assert found.at("budget") == "reproduced at budget"
    assert found.at("smoke") == "reproduced at smoke"
    assert verdict.Verdict(word="direction holds", why="").at("budget") == "direction holds"


def test_without_rows_nothing_ran() -> None:
    claim = Claim(text="c", effect=GAP, reported=1.0)
    assert verdict.judge(claim, None).word == "not run"
    said = verdict.describe(claim, None, "budget")
    assert (said["verdict"], said["measured"], said["seeds"]) == ("not run", None, 0)


def test_a_study_is_as_strong_as_its_weakest_claim_that_ran() -> None:
    words: list[Any] = ["reproduced", "direction holds", "not run"]
    assert verdict.overall([verdict.Verdict(word=w, why="") for w in words]) == "direction holds"
    assert verdict.overall([verdict.Verdict(word="not run", why="")]) == "not run"


def test_tolerances_by_kind() -> None:
    assert Claim(text="", effect=GAP, reported=2.5).allowed == 1.0
    assert Claim(text="", effect=VALUE, reported=3.2, relative=True).allowed == pytest.approx(0.32)
    assert Claim(text="", effect=VALUE, reported=61.955, tolerance=1.945).allowed == 1.945
