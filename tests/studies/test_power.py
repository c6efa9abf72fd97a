"""Verdicts that a shortened experiment can't give."""

from __future__ import annotations

import pytest

from widemargin.studies import catalog
from widemargin.studies.claims import Claim, gap, order, value
from widemargin.studies.effects import Positive
from widemargin.studies.power import checked
from widemargin.studies.result import judged
from widemargin.studies.rows import Row, flatten
from widemargin.studies.schema import ScaleName
from widemargin.studies.verdict import Verdict, Word, judge

FOUND = Verdict(word="contradicted", why="10 instead of 20")
GAP, ORDER, VALUE = gap("", "a", "b", 2.5), order("", "a", "b"), value("", "a", 90.0)


def rows(learnt: dict[str, float], **condition: float) -> list[Row]:
    """Three seeds of arms with these accuracies on training samples; they are as accurate on test samples."""
    return [
        row
        for arm, accuracy in learnt.items()
        for seed in range(3)
        for row in flatten(arm, seed, condition, {"train accuracy": accuracy, "accuracy": accuracy + 0.001 * seed})
    ]


def check(
    found: Verdict, claim: Claim, trained: list[Row], scale: ScaleName = "budget", axes: tuple[str, ...] = ()
) -> Verdict:
    return checked(found, claim, claim.effect.of(trained, claim.factor), trained, scale, axes)


@pytest.mark.parametrize(
    ("claim", "learnt", "scale", "word"),
    [
        (VALUE, (1.0, 1.0), "budget", "inconclusive"),  # less training moves a bare accuracy
        (value("", "a", 2.35, metric="train accuracy"), (1.0, 1.0), "budget", "contradicted"),  # but no other number
        (VALUE, (1.0, 1.0), "quick", "inconclusive"),
        (VALUE, (0.3, 1.0), "paper", "contradicted"),
        (GAP, (1.0, 1.0), "budget", "contradicted"),
        (GAP, (0.51, 1.0), "budget", "contradicted"),
        (GAP, (0.49, 1.0), "budget", "inconclusive"),  # arm a was trained too short
        (GAP, (0.49, 1.0), "paper", "contradicted"),
        (gap("", "a", "b", 2.5, metric="train accuracy"), (0.3, 1.0), "budget", "contradicted"),  # it is about that
        (ORDER, (0.3, 1.0), "budget", "inconclusive"),
        (ORDER, (1.0, 0.3), "budget", "inconclusive"),
        (ORDER, (0.4, 0.3), "budget", "contradicted"),  # hard for both
    ],
)
def test_a_contradiction_needs_an_experiment_that_could_show_the_effect(
    claim: Claim, learnt: tuple[float, float], scale: ScaleName, word: str
) -> None:
    found = check(FOUND, claim, rows(dict(zip("ab", learnt))), scale)
    assert found.word == word
    assert found.why.startswith(FOUND.why)
    assert (found.why == FOUND.why) == (word == "contradicted")


@pytest.mark.parametrize("word", ["reproduced", "direction holds"])
def test_a_comparison_with_an_arm_that_has_not_learnt_holds_nothing_either(word: Word) -> None:
    holds = Verdict(word=word, why="")
    for claim in (GAP, ORDER):
        for learnt, expected in (((1.0, 0.3), "inconclusive"), ((0.3, 1.0), "inconclusive"), ((1.0, 0.9), word)):
            assert check(holds, claim, rows(dict(zip("ab", learnt)))).word == expected
        assert check(holds, claim, rows({"a": 1.0, "b": 0.3}), "paper") == holds
    assert check(holds, VALUE, rows({"a": 0.1})) == holds  # the number came out, though training was shorter


def test_the_orders_other_arms_excuse_no_reversed_gap() -> None:
    trained = [
        row
        for arm, accuracy, learnt in (("a", 0.8, 1.0), ("b", 0.9, 1.0), ("c", 0.2, 0.3))
        for seed in range(5)
        for row in flatten(arm, seed, {}, {"accuracy": accuracy + 0.001 * (seed % 3), "train accuracy": learnt})
    ]
    words = {"abc": "contradicted", "cba": "inconclusive", "bca": "inconclusive", "bac": "inconclusive"}
    for arms, word in {**words, "ba": "reproduced"}.items():
        claim = order("", *arms)
        found = judge(claim, claim.effect.of(trained, claim.factor))
        assert check(found, claim, trained).word == word, arms


def test_only_the_conditions_of_the_claim_count() -> None:
    both = [
        *rows({"a": 0.2, "b": 1.0}, fraction=0.01),
        *rows({"a": 1.0, "b": 1.0}, fraction=0.05),
        *rows({"a": 0.6, "b": 1.0}, fraction=1.0),
    ]
    for fraction, word in ((0.01, "inconclusive"), (0.05, "contradicted")):
        claim = gap("", "a", "b", 2.5, where={"fraction": fraction})
        assert check(FOUND, claim, both, axes=("fraction",)).word == word
    for one, other, word in ((0.05, 0.01, "inconclusive"), (1.0, 0.05, "contradicted")):
        claim = gap("", "a", "a", 2.5, where={"fraction": one}, against_where={"fraction": other})
        assert check(FOUND, claim, both, axes=("fraction",)).word == word
    # The gap at 1 % is between unequal arms, that at 100 % is reversed as well.
    claim = order("", "a", "b", where={"fraction": (0.01, 1.0)})
    assert check(judge(claim, claim.effect.of(both)), claim, both, axes=("fraction",)).word == "contradicted"


def test_a_robust_network_need_not_learn_flipped_labels() -> None:
    found, axes = Verdict(word="direction holds", why=""), ("flips",)
    assert check(found, GAP, rows({"a": 0.3, "b": 1.0}, flips=0.8), axes=axes) == found
    assert check(found, GAP, rows({"a": 0.3, "b": 1.0}, flips=0.0), axes=axes).word == "inconclusive"


def test_a_curve_is_compared_by_the_networks_that_it_is_of() -> None:
    trained = [
        row
        for arm, learnt in (("a", 0.2), ("b", 1.0))
        for seed in range(3)
        for row in flatten(
            arm,
            seed,
            {},
            {
                "train accuracy": learnt,
                "points": [{"curve": "fgsm", "at": {"epsilon": 0.1}, "accuracy": 0.1 + 0.01 * seed}],
            },
        )
    ]
    claim = order("", "a", "b", where={"curve": "fgsm", "epsilon": 0.1})
    assert check(FOUND, claim, trained).word == "inconclusive"


def test_a_function_names_the_arms_that_it_compares() -> None:
    effect = Positive(function=lambda rows: [0.1, 0.2, 0.3], name="gain", between=("a", "b"))
    claim, holds = Claim(text="", effect=effect), Verdict(word="reproduced", why="")
    assert check(holds, claim, rows({"a": 0.3, "b": 1.0, "c": 1.0})).word == "inconclusive"
    assert check(holds, claim, rows({"a": 1.0, "b": 1.0, "c": 0.3})) == holds


def test_rows_without_training_accuracy_change_nothing() -> None:
    bare = [{key: value for key, value in row.items() if key != "train accuracy"} for row in rows({"a": 0.1, "b": 1.0})]
    assert check(FOUND, GAP, bare) == FOUND
    other = Verdict(word="inconclusive", why="")
    assert check(other, GAP, rows({"a": 0.1, "b": 1.0})) == other


def test_a_study_is_judged_with_it() -> None:
    study = catalog.study("E10")
    found = [
        row
        for seed in range(3)
        for row in flatten("hinge", seed, {}, {"accuracy": 0.5 + 0.001 * seed, "validation": 0.5})
    ]
    words = [judged(study, found, scale)["counts"] for scale in ("budget", "paper")]
    assert words == [{"not run": 4, "inconclusive": 1}, {"not run": 4, "contradicted": 1}]
