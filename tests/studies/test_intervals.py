"""Student's t against tables and simulation, Holm's procedure against its definition."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from widemargin.studies import intervals
from widemargin.studies.effects import MeasuredEffect


@pytest.mark.parametrize(("seeds", "expected"), [(1, math.inf), (2, math.inf), (3, 4.3027), (5, 2.7764), (30, 2.0452)])
def test_quantiles_are_those_of_a_table(seeds: int, expected: float) -> None:
    assert intervals.quantile(seeds) == pytest.approx(expected, abs=1e-4)


def test_an_interval_of_three_seeds_misses_one_time_in_twenty() -> None:
    draw = random.Random(0)
    missed, predicted, times = 0, 0, 4000
    for _ in range(times):
        one = MeasuredEffect.of([draw.gauss(1.0, 2.0) for _ in range(3)])
        assert one.sd is not None
        assert one.error is not None
        missed += abs(one.mean - 1.0) > intervals.half_width(one.error, 3)
        predicted += abs(one.mean - draw.gauss(1.0, 2.0)) > intervals.prediction(one.sd, 3)
    assert missed / times == pytest.approx(0.05, abs=0.015)
    assert predicted / times == pytest.approx(0.05, abs=0.015)


def test_p_values_have_two_sides_and_need_a_spread() -> None:
    assert intervals.p_above(4.3027, 1.0, 3) == pytest.approx(0.025, abs=1e-4)
    assert intervals.p_above(-4.3027, 1.0, 3) == pytest.approx(0.975, abs=1e-4)
    assert [intervals.p_above(mean, 0.0, 3) for mean in (1.0, 0.0, -1.0)] == [0.0, 0.5, 1.0]
    assert intervals.p_above(9.0, None, 1) == intervals.p_above(9.0, 0.1, 2) == 1.0


def test_holm_rejects_what_its_definition_does() -> None:
    def slow(p: tuple[float, ...], level: float) -> list[bool]:
        left, rejected = list(range(len(p))), [False] * len(p)
        while left and min(p[i] for i in left) <= level / len(left):
            least = min(left, key=lambda i: p[i])
            rejected[least] = True
            left.remove(least)
        return rejected

    for p in itertools.product((0.001, 0.009, 0.012, 0.02, 0.5), repeat=3):
        assert intervals.holm(p, 0.025) == slow(p, 0.025)


def test_the_smallest_visible_effect_is_seen_four_times_in_five() -> None:
    draw, seeds, sd, times = random.Random(1), 6, 1.5, 4000
    truth = intervals.smallest_visible(sd / math.sqrt(seeds), seeds)
    assert truth is not None
    seen = 0
    for _ in range(times):
        one = MeasuredEffect.of([draw.gauss(truth, sd) for _ in range(seeds)])
        seen += intervals.p_above(one.mean, one.error, seeds) < intervals.LEVEL
    assert seen / times == pytest.approx(0.8, abs=0.04)
    assert intervals.smallest_visible(None, 1) is None
