"""Goals are read off rows as a loop would."""

from __future__ import annotations

import math
from typing import Any

import pytest

from widemargin.studies.claims import Claim
from widemargin.studies.rows import Row, flatten
from widemargin.studies.verdict import judge
from widemargin.studies.widemargin import goals
from widemargin.studies.widemargin.goals import CROSS_ENTROPY, WIDE

ACCURACIES = {
    WIDE: {0: {"a": 0.80, "b": 0.60}, 1: {"a": 0.82, "b": 0.58}},
    CROSS_ENTROPY: {0: {"a": 0.70, "b": 0.62}, 1: {"a": 0.74, "b": 0.585}},
}


def _rows(**metrics: Any) -> list[Row]:
    """Rows of both arms, two seeds and two conditions; a metric is a function of (arm, seed, case)."""
    return [
        row
        for arm, seeds in ACCURACIES.items()
        for seed, cases in seeds.items()
        for case, accuracy in cases.items()
        for row in flatten(
            arm,
            seed,
            {"case": case},
            {"accuracy": accuracy, **{key: of(arm, seed, case) for key, of in metrics.items()}},
        )
    ]


def _mean(claim: Claim, rows: list[Row]) -> float:
    measured = claim.effect.of(rows, claim.factor)
    assert measured is not None
    return measured.mean


def test_a_gain_is_the_mean_over_conditions() -> None:
    gaps = [(0.10 - 0.02) / 2, (0.08 - 0.005) / 2]
    assert _mean(goals.gain("", 3.0), _rows()) == pytest.approx(100 * sum(gaps) / 2)
    assert _mean(goals.gain("", 3.0, where={"case": "a"}), _rows()) == pytest.approx(9)
    assert goals.gain("", 3.0, arm="none").effect.of(_rows()) is None


def test_a_share_of_conditions_that_are_not_below() -> None:
    """Condition b is 2 points below for one of the two seeds."""
    assert _mean(goals.seldom_below("", 1.0, 0.5), _rows()) == pytest.approx(100 * (0.5 + 1.0) / 2)


def test_a_ratio_is_the_geometric_mean_over_conditions() -> None:
    widths = {("a", WIDE): 4.0, ("a", CROSS_ENTROPY): 1.0, ("b", WIDE): 3.0, ("b", CROSS_ENTROPY): 6.0}
    rows = _rows(distance=lambda arm, seed, case: widths[case, arm])
    assert _mean(goals.ratio("", 1.0, "distance"), rows) == pytest.approx(math.sqrt(4 * 0.5))
    never_right = _rows(distance=lambda arm, seed, case: 0.0)
    assert _mean(goals.ratio("", 0.9, "distance"), never_right) == pytest.approx(1.0)


def test_the_largest_value_must_be_below_the_limit() -> None:
    rows = _rows(ratio=lambda arm, seed, case: 2.0 + 0.1 * seed + (0.2 if case == "b" else 0.0))
    assert _mean(goals.at_most("", 2.35, "ratio"), rows) == pytest.approx(2.25)


def test_under_attack_the_radius_halves_cross_entropys_accuracy() -> None:
    def points(arm: str, seed: int, case: str) -> list[Row]:
        accuracies = (0.8, 0.6, 0.1) if arm == CROSS_ENTROPY else (0.8, 0.7, 0.6)
        return [
            {"curve": goals.PGD, "at": {"epsilon": r}, "accuracy": a} for r, a in zip((0.0, 0.01, 0.02), accuracies)
        ]

    rows = _rows(points=points)
    radius = 0.01 + 0.01 * 0.2 / 0.5
    assert goals.half_radius([(0.0, 0.8), (0.01, 0.6), (0.02, 0.1)]) == pytest.approx(radius)
    assert goals.half_radius([(0.0, 0.8), (0.01, 0.6)]) == 0.01
    ours = 0.7 - 0.1 * (radius - 0.01) / 0.01
    assert _mean(goals.attacked("", 15.0), rows) == pytest.approx(100 * (ours - 0.4))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([0.040, 0.041, 0.042], "reproduced"),
        ([0.020, 0.021, 0.022], "direction holds"),
        ([-0.02, -0.021, -0.022], "contradicted"),
        ([0.02, 0.05, -0.01], "inconclusive"),
    ],
)
def test_a_goal_is_met_beyond_its_spread(values: list[float], word: str) -> None:
    rows = [
        row
        for seed, value in enumerate(values)
        for arm, accuracy in ((WIDE, 0.5 + value), (CROSS_ENTROPY, 0.5))
        for row in flatten(arm, seed, {}, {"accuracy": accuracy})
    ]
    claim = goals.gain("", 3.0)
    assert judge(claim, claim.effect.of(rows, claim.factor)).word == word
