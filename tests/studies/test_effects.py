"""Numbers read off rows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from widemargin.studies.effects import Custom, Gap, MeasuredEffect, Order, Positive, Ratio, Value
from widemargin.studies.rows import Row, flatten


def rows(*trials: tuple[str, int, dict[str, Any], dict[str, Any]]) -> list[Row]:
    return [row for trial in trials for row in flatten(*trial)]


TABLE = rows(
    ("a", 0, {"flips": 0.0}, {"accuracy": 0.9}),
    ("a", 1, {"flips": 0.0}, {"accuracy": 0.8}),
    ("a", 0, {"flips": 0.8}, {"accuracy": 0.7}),
    ("a", 1, {"flips": 0.8}, {"accuracy": 0.5}),
    ("b", 0, {"flips": 0.0}, {"accuracy": 0.85}),
    ("b", 1, {"flips": 0.0}, {"accuracy": 0.74}),
    ("b", 0, {"flips": 0.8}, {"accuracy": 0.75}),
    ("b", 1, {"flips": 0.8}, {"accuracy": 0.52}),
    ("a", 0, {"flips": 0.4}, {"loss": None, "points": [{"curve": "fgsm", "at": {"epsilon": 0.1}, "accuracy": 0.3}]}),
)


def close(measured: MeasuredEffect | None, mean: float, sd: float | None, count: int) -> None:
    assert measured is not None
    assert measured.mean == pytest.approx(mean)
    assert measured.sd is None if sd is None else measured.sd == pytest.approx(sd)
    assert measured.seeds == count


def test_a_value_is_a_mean_over_seeds() -> None:
    close(Value(metric="accuracy", arm="a", where={"flips": 0.0}).of(TABLE, 100.0), 85, 5 * math.sqrt(2), 2)


def test_a_gap_is_taken_seed_by_seed() -> None:
    close(
        Gap(metric="accuracy", arm="a", against="b", where={"flips": 0.0}).of(TABLE, 100.0), 5.5, 0.5 * math.sqrt(2), 2
    )


def test_several_conditions_are_averaged_in_a_gap_and_kept_apart_in_an_order() -> None:
    gap = Gap(metric="accuracy", arm="a", against="b").of(TABLE, 100.0)
    close(gap, 1.0, math.sqrt(2), 2)  # (5 − 5)/2 and (6 − 2)/2
    order = Order(metric="accuracy", ordered=("a", "b")).of(TABLE, 100.0)
    close(order, 1.0, math.sqrt(2), 2)
    assert order is not None
    assert {name: round(part.mean, 9) for name, part in order.parts} == {
        "a − b at flips 0.0": 5.5,
        "a − b at flips 0.8": -3.5,
    }
    some = Order(metric="accuracy", ordered=("a", "b"), where={"flips": (0.0, 0.4)}).of(TABLE)
    assert some is not None
    assert [name for name, _ in some.parts] == ["a − b at flips 0.0"]


def test_a_gap_across_conditions() -> None:
    effect = Gap(metric="accuracy", arm="a", against="a", where={"flips": 0.0}, against_where={"flips": 0.8})
    close(effect.of(TABLE), 0.25, math.sqrt(0.005), 2)


def test_a_ratio_has_no_unit() -> None:
    close(
        Ratio(metric="accuracy", arm="a", against="b", where={"flips": 0.8}).of(TABLE[2:7:4], 100.0),
        0.7 / 0.75,
        None,
        1,
    )


def test_points_of_a_curve_are_asked_for_by_its_name() -> None:
    at = {"curve": "fgsm", "epsilon": 0.1}
    close(Value(metric="accuracy", arm="a", where=at).of(TABLE), 0.3, None, 1)
    assert Value(metric="accuracy", arm="a", where={"flips": 0.4}).of(TABLE) is None
    assert Value(metric="accuracy", arm="a", where={"curve": "fgsm", "epsilon": 0.2}).of(TABLE) is None


def test_missing_rows_give_no_number() -> None:
    assert Value(metric="other", arm="a").of(TABLE) is None
    assert Gap(metric="accuracy", arm="a", against="c").of(TABLE) is None
    assert Order(metric="accuracy", ordered=("a", "c")).of(TABLE) is None
    assert Custom(function=lambda _: []).of(TABLE) is None


def test_anything_else() -> None:
    effect = Custom(function=lambda rows: [row["accuracy"] for row in rows if row["arm"] == "b"][:2], baseline=0)
    close(effect.of(TABLE, 10.0), 7.95, 0.55 * math.sqrt(2), 2)
    assert effect.null == 0.0


@pytest.mark.parametrize(
    ("measured", "said"), [({"points": [{"at": {"e": 1}}]}, "has no curve"), ({"flips": 1.0}, "also an axis")]
)
def test_rows_that_can_not_be_flattened(measured: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(flatten("a", 0, {"flips": 0.0}, measured))


def test_a_number_that_must_only_be_positive() -> None:
    effect = Positive(function=lambda rows: [row["gain"] for row in rows], name="gain")
    found = effect.of([{"gain": 0.1}, {"gain": 0.3}], 100.0)
    assert found is not None
    assert found.mean == pytest.approx(20.0)
    assert found.parts[0][0] == "gain"
    assert effect.is_order
    assert effect.of([]) is None
    assert (effect.arms, Positive(function=effect.function, name="", between=("a", "b")).arms) == ((), ("a", "b"))
