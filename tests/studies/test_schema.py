"""What a study may be."""

from __future__ import annotations

from typing import Any

import pytest

from studies import tiny
from widemargin.studies.claims import Claim
from widemargin.studies.effects import Gap, Order, Value
from widemargin.studies.schema import Arm, Scale, grid

ODD: Any = {"x": [1]}
GAP = Gap(metric="accuracy", arm="a", against="b")


def test_a_search_is_cut_to_what_differs_least_from_the_first_values() -> None:
    arm = Arm(name="a", search={"lr": (0.1, 0.2, 0.3), "gamma": (1, 2)})
    assert arm.grid == 6
    assert [tuple(cell.values()) for cell in arm.cells(6)] == [
        (0.1, 1),
        (0.1, 2),
        (0.2, 1),
        (0.2, 2),
        (0.3, 1),
        (0.3, 2),
    ]
    assert arm.cells(2) == [{"lr": 0.1, "gamma": 1}, {"lr": 0.1, "gamma": 2}]
    assert Arm(name="a").cells(1) == [{}]


def test_a_grid_has_all_combinations() -> None:
    assert grid(a=(1, 2), b=("x",)) == ({"a": 1, "b": "x"}, {"a": 2, "b": "x"})
    assert grid() == ({},)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": (Arm(name="a"), Arm(name="a"))}, "a, a"),
        ({"conditions": ({"other": 1},)}, r"condition {'other': 1}"),
        ({"claims": (Claim(text="", effect=Value(metric="m", arm="c"), reported=1),)}, "'c'"),
        ({"scale": Scale(minutes=1, cells=3)}, r"3 search cells.*'b' has 2"),
        ({"scale": Scale(minutes=1, arms=("c",))}, "'c'"),
        ({"scale": Scale(minutes=1, of_arms={"c": {}})}, "'c'"),
        ({"scale": Scale(minutes=1, seeds=2)}, "2 seeds"),
        ({"scales": {"smoke": Scale(minutes=1)}}, "scales smoke"),
    ],
)
def test_a_study_that_contradicts_itself(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tiny.study(**changes)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Arm(name="a", search=ODD), r"search\['x'\]"),
        (lambda: Arm(name="a", settings={"p": float("inf")}), r"'a'.*inf"),
        (lambda: Scale(minutes=1, seeds=0), "seeds is 0"),
        (lambda: Claim(text="c", effect=GAP), "reported is None"),
        (lambda: Claim(text="c", effect=Order(metric="m", ordered=("a", "b")), reported=1), "reported is 1"),
    ],
)
def test_parts_that_can_not_be(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
