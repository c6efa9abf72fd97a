"""What a comparison may be called."""

from __future__ import annotations

import random
from typing import Any

import pytest

from widemargin.studies import catalog, verdict
from widemargin.studies.claims import Claim
from widemargin.studies.effects import Effect, Gap, MeasuredEffect, Order, Value
from widemargin.studies.result import judged, reported
from widemargin.studies.rows import Row, flatten

GAP = Gap(metric="m", arm="a", against="b")
VALUE = Value(metric="m", arm="a")
ORDER = Order(metric="m", ordered=("a", "b"))


def seeds(mean: float, error: float | None, count: int = 5) -> MeasuredEffect:
    """Five seeds with this mean and standard error (half the interval is 2.78 of it); one without."""
    if error is None:
        return MeasuredEffect(mean=mean, sd=None, seeds=1)
    return MeasuredEffect(mean=mean, sd=count**0.5 * error, seeds=count)


@pytest.mark.parametrize(
    ("effect", "given", "mean", "error", "word"),
    [
        (GAP, 2.5, 2.0, 0.3, "reproduced"),  # inside one point, and stands out
        (GAP, 2.5, 4.2, 0.1, "direction holds"),  # too large
        (GAP, 2.5, 4.2, 0.3, "reproduced"),  # one run of the paper's may miss by 2.04
        (GAP, 2.5, 4.2, 0.4, "direction holds"),  # but not where our own mean is not known to a point
        (GAP, 2.5, 2.0, 0.9, "inconclusive"),  # inside, but can't be told from nothing
        (GAP, 2.5, 0.0, 5.0, "inconclusive"),  # noise reproduces nothing and contradicts nothing
        (GAP, 2.5, -2.0, 0.3, "contradicted"),
        (GAP, 2.5, 0.1, 0.1, "contradicted"),  # no effect of the size reported
        (GAP, 2.5, 0.1, 0.3, "inconclusive"),  # ± 0.83, and one run of the paper's ± 2.04
        (GAP, -2.5, -2.0, 0.3, "reproduced"),
        (GAP, -2.5, -9.0, 0.3, "direction holds"),
        (GAP, 0.1, 0.2, 0.3, "reproduced"),  # the paper's effect is itself smaller than the tolerance
        (GAP, 0.1, -0.2, 0.3, "reproduced"),
        (GAP, 0.1, -0.9, 0.3, "contradicted"),  # but the other side is the other side
        (GAP, 0.0, 0.9, 0.1, "reproduced"),  # "no difference"
        (GAP, 0.0, 2.1, 0.1, "contradicted"),
        (GAP, 2.5, 2.0, None, "inconclusive"),  # one seed
        (VALUE, 96.4, 95.5, 0.1, "reproduced"),
        (VALUE, 96.4, 95.0, 0.3, "reproduced"),
        (VALUE, 96.4, 95.0, 0.1, "inconclusive"),  # between the tolerance and what contradicts
        (VALUE, 96.4, 94.0, 0.1, "contradicted"),
        (VALUE, 96.4, 96.0, 5.0, "inconclusive"),  # known to ± 10: that explains nothing
        (VALUE, 99.4, 98.9, 0.01, "contradicted"),  # a point is much at 99.4 %: the tolerance is 0.3
    ],
)
def test_a_number(effect: Effect, given: float, mean: float, error: float | None, word: str) -> None:
    found = verdict.judge(Claim(text="", effect=effect, reported=given), seeds(mean, error))
    assert (found.word, "one seed" in found.why) == (word, error is None)


@pytest.mark.parametrize(
    ("side", "mean", "word"),
    [
        ("at least", 73.9, "reproduced"),
        ("at least", 99.0, "reproduced"),
        ("at least", 70.0, "contradicted"),
        ("at most", 40.0, "reproduced"),
        ("at most", 90.0, "contradicted"),
        ("both", 99.0, "contradicted"),
    ],
)
def test_a_bound_has_one_side(side: Any, mean: float, word: str) -> None:
    claim = Claim(text="", effect=VALUE, reported=73.81, side=side)
    assert verdict.judge(claim, seeds(mean, 0.2)).word == word
    assert verdict.judge(Claim(text="", effect=VALUE, reported=73.81, side="at least"), seeds(99.0, 3.0)).word == (
        "reproduced"  # far on the free side, the spread is of no matter
    )


def test_reasons_have_minus_signs_and_say_nothing_of_a_spread_of_zero() -> None:
    claim = Claim(text="", effect=VALUE, reported=-0.5, side="at least", tolerance=0.0, one_draw=False, goal=True)
    assert verdict.judge(claim, seeds(-3.0, 0.2)).why.startswith("−3 ± 0.56, goal: at least −0.5; an effect of")
    exact = verdict.judge(claim, seeds(-3.0, 0.0))
    assert (exact.word, exact.why) == ("contradicted", "−3 ± 0, goal: at least −0.5")
    paper = verdict.judge(Claim(text="", effect=GAP, reported=-2.5), seeds(-2.5, 0.1))
    assert paper.why == "−2.5 ± 0.28, reported −2.5 ± 1"


def test_a_mean_over_runs_has_no_spread_of_one_run() -> None:
    one, mean = (Claim(text="", effect=VALUE, reported=96.4, one_draw=draw) for draw in (True, False))
    assert verdict.judge(one, seeds(95.0, 0.3)).word == "reproduced"
    assert verdict.judge(mean, seeds(95.0, 0.3)).word == "inconclusive"
    assert verdict.judge(mean, seeds(94.0, 0.3)).word == "contradicted"


@pytest.mark.parametrize(
    ("gaps", "slack", "word"),
    [
        ([(1.0, 0.2), (2.0, 0.3)], 0.0, "reproduced"),
        ([(1.2, 0.3), (0.2, 0.3)], 0.0, "inconclusive"),
        ([(3.0, 0.3), (-0.2, 0.3)], 0.0, "direction holds"),
        ([(3.0, 0.3), (-2.0, 0.3)], 0.0, "contradicted"),
        ([(0.84, 0.3)], 0.0, "reproduced"),
        ([(0.84, 0.3), (0.84, 0.3)], 0.0, "direction holds"),  # Holm: one of two must stand out by 3.5
        ([(0.2, None)], 0.0, "inconclusive"),
        ([(0.0, 0.0)], 0.0, "inconclusive"),  # a tie is not above
        ([(0.0, 0.0)], 0.5, "reproduced"),  # but at least as good
        ([(-0.2, 0.05)], 0.5, "reproduced"),
        ([(-0.9, 0.05)], 0.5, "contradicted"),
    ],
)
def test_an_order(gaps: list[tuple[float, float | None]], slack: float, word: str) -> None:
    parts = tuple((str(i), seeds(*gap)) for i, gap in enumerate(gaps))
    one = seeds(sum(gap for gap, _ in gaps) / len(gaps), gaps[0][1])
    measured = MeasuredEffect(mean=one.mean, sd=one.sd, seeds=one.seeds, parts=parts)
    claim = Claim(text="", effect=Order(metric="m", ordered=("a", "b"), slack=slack))
    assert verdict.judge(claim, measured).word == word


def test_two_seeds_decide_nothing_that_needs_their_spread() -> None:
    assert verdict.judge(Claim(text="", effect=GAP, reported=2.5), seeds(2.5, 0.0, 2)).word == "inconclusive"
    assert verdict.judge(Claim(text="", effect=VALUE, reported=100, tolerance=0), seeds(100.0, 0.0, 2)).word == (
        "reproduced"
    )
    assert verdict.judge(Claim(text="", effect=VALUE, reported=96.4), seeds(80.0, 0.1, 2)).word == "inconclusive"


def test_a_contradiction_names_what_it_could_have_seen_and_doubt_what_it_takes() -> None:
    claim = Claim(text="", effect=GAP, reported=2.5)
    found = verdict.judge(claim, seeds(-2.0, 0.3))
    assert found.smallest == pytest.approx((2.7764 + 0.941) * 0.3, rel=1e-3)
    assert "an effect of 1.1 would have been seen" in found.why
    doubt = verdict.judge(claim, seeds(2.0, 0.9))
    needed = int(doubt.why.split("; ")[-1].split()[0])
    assert verdict.judge(claim, MeasuredEffect(mean=2.0, sd=0.9 * 5**0.5, seeds=needed)).word == "reproduced"
    assert verdict.judge(claim, MeasuredEffect(mean=2.0, sd=0.9 * 5**0.5, seeds=needed - 1)).word == "inconclusive"


def test_dead_seeds_are_said_and_too_many_decide_nothing() -> None:
    claim = Claim(text="", effect=GAP, reported=2.5)
    few = verdict.judge(claim, seeds(2.0, 0.3), {"a": (1, 6)})
    assert few.word == "reproduced"
    assert "1 of 6 seeds of a died" in few.why
    assert verdict.judge(claim, seeds(2.0, 0.3), {"a": (3, 5)}).word == "inconclusive"


def test_only_paper_scale_says_reproduced_alone() -> None:
    found = verdict.Verdict(word="reproduced", why="")
    assert found.at("paper") == "reproduced"
    assert found.at("budget") == "reproduced at budget"
    assert found.at("smoke") == "reproduced at smoke"
    assert verdict.Verdict(word="direction holds", why="").at("budget") == "direction holds"


def test_without_rows_nothing_ran() -> None:
    claim = Claim(text="c", effect=GAP, reported=1.0)
    assert verdict.judge(claim, None).word == "not run"
    said = verdict.describe(claim, None, verdict.judge(claim, None), "budget")
    assert (said["verdict"], said["measured"], said["seeds"]) == ("not run", None, 0)


@pytest.mark.parametrize(
    ("counts", "word", "weakest"),
    [
        ((4, 0, 1, 0), "reproduced", "inconclusive"),
        ((9, 0, 0, 1), "direction holds", "contradicted"),  # nothing contradicted may be called reproduced
        ((3, 1, 2, 0), "direction holds", "inconclusive"),
        ((3, 0, 3, 0), "inconclusive", "inconclusive"),
        ((3, 0, 4, 1), "inconclusive", "contradicted"),
        ((3, 0, 1, 2), "contradicted", "contradicted"),
        ((0, 0, 0, 0), "not run", "not run"),
    ],
)
def test_the_word_of_a_study_is_a_matter_of_shares(counts: tuple[int, ...], word: str, weakest: str) -> None:
    words = [w for w, count in zip(verdict.STRENGTH, counts) for _ in range(count)]
    found = [verdict.Verdict(word=w, why="") for w in [*words, "not run"]]  # one that did not run counts for nothing
    assert (verdict.overall(found), verdict.weakest(found)) == (word, weakest)


def test_tolerances_by_kind() -> None:
    assert Claim(text="", effect=GAP, reported=2.5).allowed == 1.0
    assert Claim(text="", effect=VALUE, reported=3.2, relative=True).allowed == pytest.approx(0.32)
    assert Claim(text="", effect=VALUE, reported=61.955, tolerance=1.945).allowed == 1.945
    assert [Claim(text="", effect=VALUE, reported=r).allowed for r in (90.0, 99.0, 100.0)] == [1.0, 0.5, 0.1]


def _papers(claim: Claim, rows: list[Any]) -> MeasuredEffect:
    """The paper's own number, from its rows where they have it; else the claim's, or a gap of one."""
    found = claim.effect.of(rows, claim.factor)
    if found is not None and found.seeds > 1:
        return found
    mean = 1.0 if claim.reported is None else float(claim.reported)
    exact = MeasuredEffect(mean=mean, sd=0.0, seeds=5)
    return exact if claim.reported is not None else MeasuredEffect(mean=1.0, sd=0.0, seeds=5, parts=(("gap", exact),))


def _turned(claim: Claim) -> MeasuredEffect:
    """The effect with its sign turned; a number without a side is moved by far more than its tolerance."""
    slack = claim.effect.slack
    if claim.reported is None:
        one = MeasuredEffect(mean=-1.0 - 2 * slack, sd=0.0, seeds=5)
        return MeasuredEffect(mean=one.mean, sd=0.0, seeds=5, parts=(("gap", one),))
    null, away = claim.effect.null, float(claim.reported)
    if null is not None and away != null:
        return MeasuredEffect(mean=2 * null - away, sd=0.0, seeds=5)
    step = 3 * float(claim.allowed or 0) + 0.01 * max(1.0, abs(away))
    return MeasuredEffect(mean=away + (step if claim.side == "at most" else -step), sd=0.0, seeds=5)


@pytest.mark.parametrize("id", catalog.MODULES)
def test_the_papers_own_numbers_reproduce_and_turned_ones_contradict(id: str) -> None:
    study = catalog.study(id)
    rows: list[Row] = []
    for row in reported(study):
        axes = {key: row[key] for key in study.axes if key in row}
        metrics = {
            key: value for key, value in row.items() if key not in (*axes, "arm", "curve", "epsilon", "place", "part")
        }
        for seed in range(5):
            if "curve" not in row:
                rows += flatten(row["arm"], seed, axes, metrics)
    claims = [claim for claim in study.claims if not claim.ours]
    held = [verdict.judge(claim, _papers(claim, rows)) for claim in claims]
    assert {one.word for one in held} == {"reproduced"}, [(c.text, v) for c, v in zip(claims, held)]
    assert verdict.overall(held) == "reproduced"
    turned = [verdict.judge(claim, _turned(claim)) for claim in claims]
    assert {one.word for one in turned} == {"contradicted"}, [(c.text, v) for c, v in zip(claims, turned)]
    assert verdict.overall(turned) == "contradicted"


def test_a_true_table_is_found_reproduced() -> None:
    # Under the first rules no simulated run was: 42 claims were as strong as the weakest of them.
    study, draw = catalog.study("S3"), random.Random(0)
    table = reported(study)
    words = []
    for _ in range(10):
        rows: list[Row] = []
        for seed in range(5):
            shared = {(row["samples"], row["layers"]): draw.gauss(0, 0.003) for row in table}
            for row in table:
                at = {"samples": row["samples"], "layers": row["layers"]}
                accuracy = row["accuracy"] + shared[tuple(at.values())] + draw.gauss(0, 0.002)
                rows += flatten(row["arm"], seed, at, {"accuracy": accuracy})
        words.append(judged(study, rows, "paper")["word"])
    assert words.count("reproduced") >= 8, words
    assert set(words) <= {"reproduced", "direction holds"}
