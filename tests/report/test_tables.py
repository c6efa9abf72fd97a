from __future__ import annotations

from typing import Any

from report.synthetic import result
from widemargin.report import tables
from widemargin.report.check import check


def small(**changes: Any) -> Any:
    arms = [
        {"name": "a", "accuracy": 0.9, "samples": 400, "margins": {"input": [1.0, 3.0]}},
        {"name": "b", "accuracy": 0.90001, "samples": 400, "margins": {"input": [-1.0, 4.0]}},
        {"name": "c"},
    ]
    return check({"title": "t", "arms": arms, **changes})


def test_the_overview_has_a_row_per_arm_and_marks_the_best() -> None:
    table = tables.overview(small())
    assert table.heads == ["accuracy", "mean margin", "mean/std", "negative"]
    assert [(label, [cell.text for cell in cells]) for label, cells in table.rows] == [
        ("a", ["90.0 %", "2.00", "2.00", "0.0 %"]),
        ("b", ["90.0 %", "1.50", "0.600", "50.0 %"]),
        ("c", ["–", "–", "–", "–"]),
    ]
    marked = [[cell.best for cell in cells] for _, cells in table.rows]
    # Equal as shown is equal, whatever the fifth digit says.
    assert marked == [[True, True, True, True], [True, False, False, False], [False] * 4]


def test_one_arm_has_nothing_to_be_better_than() -> None:
    table = tables.overview(check({"title": "t", "arms": [{"name": "a", "accuracy": 0.5}]}))
    assert [[cell.best for cell in cells] for _, cells in table.rows] == [[False]]


def test_attacks_have_a_column_per_epsilon() -> None:
    assert tables.overview(check(result())).heads[-2:] == ["FGSM, ε = 0.05", "FGSM, ε = 0.1"]


def test_the_notes_say_the_standard_error() -> None:
    notes = " ".join(tables.notes(small(norm="l_inf")))
    assert "linearised l∞ distance" in notes
    # sqrt(0.9 · 0.1 / 400) = 0.015, but one arm has no samples: none is said.
    assert "standard error" not in notes
    two = check({"title": "t", "arms": small()["arms"][:2]})
    assert "on 400 samples is at most 1.5 points" in " ".join(tables.notes(two))


def test_a_long_history_is_told_at_ten_epochs_with_both_ends() -> None:
    table = tables.of_training(check(result()), "distance", "input")
    assert (table.heads[0], table.heads[-1], len(table.heads)) == ("epoch 1", "epoch 40", 10)
    assert [label for label, _ in table.rows][:2] == ["cross-entropy, validation", "cross-entropy, training"]


def test_each_chart_has_its_numbers() -> None:
    full = check(result())
    assert tables.of_attack(full).heads[:2] == ["ε = 0", "ε = 0.025"]
    assert tables.of_sizes(full).heads[-1] == "1,000 samples"
    margins = tables.of_margins(full, "conv1")
    assert len(margins.heads) == len(margins.rows[0][1])
    assert margins.heads[-3] == "50 % below"


def test_seeds_are_shown_as_means_with_their_spread() -> None:
    def seeds(*values: float) -> list[dict[str, Any]]:
        curve = [{"epsilon": 0.1, "accuracy": 0.5}]
        return [{"seed": k, "accuracy": v, "margin": 2 * v, "curve": curve} for k, v in enumerate(values)]

    arms = [
        {"name": "a", "seeds": seeds(0.4, 0.5, 0.6)},
        {"name": "b", "seeds": seeds(0.905, 0.915, 0.925)},
        {"name": "c", "seeds": seeds(0.91, 0.92, 0.93)},
    ]
    shown = check({"title": "t", "arms": arms, "attack": {"name": "PGD", "shown": [0.1, 0.2]}})
    table = tables.overview(shown)
    assert table.heads == ["accuracy", "mean margin", "PGD, ε = 0.1", "PGD, ε = 0.2"]
    assert [cell.text for cell in table.rows[0][1]] == ["50.0 ± 10.0 %", "1.00 ± 0.20", "50.0 ± 0.0 %", "–"]
    # b is within the spread of c, the best; equal columns are not marked.
    assert [[cell.best for cell in cells] for _, cells in table.rows] == [
        [False] * 4,
        [True, True, False, False],
        [True, True, False, False],
    ]
    assert "over 3 seeds" in " ".join(tables.notes(shown))
