"""What a shortened experiment can't contradict."""

from __future__ import annotations

import pytest

from widemargin.studies import catalog
from widemargin.studies.claims import Claim, gap, order, value
from widemargin.studies.power import checked
from widemargin.studies.result import judged
from widemargin.studies.rows import Row, flatten
from widemargin.studies.schema import ScaleName
from widemargin.studies.verdict import Verdict

FOUND = Verdict(word="contradicted", why="10 instead of 20")
GAP, ORDER, VALUE = gap("", "a", "b", 2.5), order("", "a", "b"), value("", "a", 90.0)


def rows(a: float, b: float, **condition: float) -> list[Row]:
    """Three seeds of two arms with these accuracies on training samples."""
    learnt = {"a": a, "b": b}
    return [
        row
        for arm in learnt
        for seed in range(3)
        for row in flatten(arm, seed, condition, {"train accuracy": learnt[arm]})
    ]


@pytest.mark.parametrize(
    ("claim", "learnt", "scale", "word"),
    [
        (VALUE, (1.0, 1.0), "budget", "inconclusive"),  # less training moves a bare accuracy
        (value("", "a", 2.35, metric="ratio"), (1.0, 1.0), "budget", "contradicted"),  # but no cost
        (VALUE, (1.0, 1.0), "quick", "inconclusive"),
        (VALUE, (0.3, 1.0), "paper", "contradicted"),
        (GAP, (1.0, 1.0), "budget", "contradicted"),
        (GAP, (0.51, 1.0), "budget", "contradicted"),
        (GAP, (0.49, 1.0), "budget", "inconclusive"),  # arm a was trained too short
        (GAP, (0.49, 1.0), "paper", "contradicted"),
        (ORDER, (0.3, 1.0), "budget", "inconclusive"),
        (ORDER, (1.0, 0.3), "budget", "inconclusive"),
        (ORDER, (0.4, 0.3), "budget", "contradicted"),  # hard for both
    ],
)
def test_a_contradiction_needs_an_experiment_that_could_show_the_effect(
    claim: Claim, learnt: tuple[float, float], scale: ScaleName, word: str
) -> None:
    found = checked(FOUND, claim, rows(*learnt), scale, ())
    assert found.word == word
    assert found.why.startswith(FOUND.why)
    assert (found.why == FOUND.why) == (word == "contradicted")


def test_only_the_conditions_of_the_claim_count() -> None:
    both = [*rows(0.2, 1.0, fraction=0.01), *rows(1.0, 1.0, fraction=0.05)]
    for fraction, word in ((0.01, "inconclusive"), (0.05, "contradicted")):
        claim = gap("", "a", "b", 2.5, where={"fraction": fraction})
        assert checked(FOUND, claim, both, "budget", ("fraction",)).word == word


def test_a_curve_is_compared_by_the_networks_that_it_is_of() -> None:
    claim = order("", "a", "b", where={"curve": "fgsm", "epsilon": 0.1})
    assert checked(FOUND, claim, rows(0.2, 1.0), "budget", ()).word == "inconclusive"


def test_other_verdicts_and_rows_without_training_accuracy_stay() -> None:
    holds = Verdict(word="direction holds", why="")
    assert checked(holds, GAP, rows(0.1, 1.0), "budget", ()) == holds
    assert checked(FOUND, GAP, [], "budget", ()) == FOUND


def test_a_study_is_judged_with_it() -> None:
    study = catalog.study("E10")
    found = [
        row
        for seed in range(3)
        for row in flatten("hinge", seed, {}, {"accuracy": 0.5 + 0.001 * seed, "validation": 0.5})
    ]
    words = [judged(study, found, scale)["counts"] for scale in ("budget", "paper")]
    assert words == [{"not run": 4, "inconclusive": 1}, {"not run": 4, "contradicted": 1}]
