"""Which trainings are dead, and what is left without them."""

from __future__ import annotations

import pytest

from widemargin.studies import dead_seeds
from widemargin.studies.effects import Gap, Order
from widemargin.studies.rows import AXES, Row, flatten

TRIALS = [
    ("a", 0, 0.0, 0.99, None),
    ("a", 1, 0.0, 0.11, None),  # at guessing
    ("b", 0, 0.0, 0.98, None),
    ("b", 1, 0.0, 0.97, None),
    ("a", 0, 0.8, 0.30, "scores are NaN"),
    ("a", 1, 0.8, 0.90, None),
    ("b", 0, 0.8, 0.80, None),
    ("b", 1, 0.8, 0.80, None),
]
ROWS: list[Row] = [
    row
    for arm, seed, flips, accuracy, died in TRIALS
    for row in flatten(
        arm,
        seed,
        {"flips": flips},
        {"validation": accuracy, "accuracy": accuracy, "died": died}
        | {"points": [{"curve": "fgsm", "at": {"epsilon": 0.1}, "accuracy": accuracy / 2}]},
    )
]


@pytest.mark.parametrize(
    ("row", "classes", "dead"),
    [
        ({"validation": 0.15}, 10, True),
        ({"validation": 0.2}, 10, False),
        ({"validation": 0.52}, 2, True),
        ({"validation": 0.7}, 2, False),
        ({"accuracy": 0.1}, 10, False),  # without validation data, guessing may be what is to be shown
        ({"validation": 0.9, "died": "scores are NaN"}, 10, True),
    ],
)
def test_a_training_that_guesses_is_dead(row: Row, classes: int, dead: bool) -> None:
    assert dead_seeds.is_dead(row, classes) == dead


def test_dead_trials_leave_with_their_curves_and_are_counted() -> None:
    living, dead = dead_seeds.split(ROWS, 10, ["flips"])
    assert dead == {("a", 1, (("flips", 0.0),)), ("a", 0, (("flips", 0.8),))}
    assert len(living) == len(ROWS) - 4
    count = dead_seeds.counts(ROWS, dead, ["flips"], ("a", "b"), {"flips": (0.0, 0.4)})
    assert count == {"a": (1, 2)}
    assert dead_seeds.counts(ROWS, dead, ["flips"], (), {}) == {"a": (2, 4)}
    gap = Gap(metric="accuracy", arm="a", against="b", where={"flips": 0.0}).of(living, 100.0)
    assert gap is not None
    assert (round(gap.mean, 9), gap.seeds) == (1.0, 1)


def test_an_order_has_the_gaps_that_live_and_its_mean() -> None:
    living, _ = dead_seeds.split(ROWS, 10, ["flips"])
    order = Order(metric="accuracy", ordered=("a", "b")).of(living, 100.0)
    assert order is not None
    assert [(name, round(part.mean, 9), part.seeds) for name, part in order.parts] == [
        ("a − b at flips 0.0", 1.0, 1),
        ("a − b at flips 0.8", 10.0, 1),
    ]


def test_rows_of_a_file_get_their_axes_back() -> None:
    stored = [{key: value for key, value in row.items() if key != AXES} for row in ROWS]
    assert dead_seeds.with_axes(stored, ["flips"], {"fgsm": ["epsilon"]}) == ROWS
