"""Brackets on the page: what is drawn is what is there, and what is not as it should be is refused."""

from __future__ import annotations

import copy
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from report.test_figures import tables_of
from widemargin.report import brackets, figures
from widemargin.report.check import check
from widemargin.report.page import render
from widemargin.report.sections import sections


def arm(name: str) -> dict[str, Any]:
    """Four samples: one closed, one misclassified, one without an upper bound, one without a gradient."""
    return {
        "name": name,
        "bracket": {
            "lower": [0.1, 0.0, 0.3, 0.05],
            "upper": [0.4, 0.0, None, 0.2],
            "linearized": [0.45, -0.1, 0.6, None],
            "band": [
                {"epsilon": 0.0, "certified": 0.75, "attacked": 0.75},
                {"epsilon": 0.2, "certified": 0.25, "attacked": 0.5},
                {"epsilon": 0.4, "certified": 0.0, "attacked": 0.25},
            ],
        },
    }


RESULT: Any = {"title": "t", "norm": "l_2", "arms": [arm("a"), {"name": "bare"}, arm("b")]}


def test_each_sample_that_is_right_is_a_line_in_the_order_of_the_upper_bounds() -> None:
    rows = [row for row in tables_of(brackets.distances(RESULT))[0] if row["arm"] == "b"]
    assert [(row["rank"], row["lower"], row["upper"], row["linearized"]) for row in rows] == [
        (1, 0.05, 0.2, None),
        (2, 0.1, 0.4, 0.45),
        (3, 0.3, 0.4, 0.6),
    ]
    assert [row["bound"] for row in rows] == ["found", "found", "none"]
    assert rows[2]["shown"] == "nothing found"
    first = [row["place"] for row in tables_of(brackets.distances(RESULT))[0] if row["arm"] == "a"]
    assert all(a != row["place"] for a, row in zip(first, rows, strict=True))


def test_many_samples_are_drawn_as_medians() -> None:
    count = 6_000
    bounds: dict[str, list[Any]]
    bounds = {"lower": [0.1 * i for i in range(count)], "upper": [0.2 * i + 1.0 for i in range(count - 900)]}
    bounds |= {"upper": bounds["upper"] + [None] * 900, "linearized": [0.15 * i for i in range(count)], "band": []}
    large: Any = {"title": "t", "norm": "l_2", "arms": [{"name": "a", "bracket": bounds}, arm("b")]}
    chart = brackets.distances(large).to_dict()
    rows = [row for row in chart["datasets"]["rows"] if row["arm"] == "a"]
    assert len(rows) <= brackets.MOST + 1
    assert sum(row["samples"] for row in rows) == count
    assert [row["bound"] for row in rows] == sorted(row["bound"] for row in rows)
    first = [0.2 * i + 1.0 for i in range(rows[0]["samples"])]
    assert rows[0]["upper"] == pytest.approx(statistics.median(first), rel=1e-3)
    assert "a line is the median of 6" in str(chart)
    assert len([row for row in chart["datasets"]["rows"] if row["arm"] == "b"]) == 3  # as they are
    assert len(render(large)) < 2.5e6
    (table,) = [rows for rows in [brackets.of_distances(large).rows] if rows]
    assert "6,000" in str(table[0])  # the table is of all samples


def test_the_band_is_drawn_from_certified_to_attacked() -> None:
    chart = brackets.robust(RESULT).to_dict()
    rows = [row for row in chart["datasets"]["rows"] if row["arm"] == "a"]
    assert [(row["epsilon"], row["certified"], row["attacked"]) for row in rows] == [
        (0.0, 0.75, 0.75),
        (0.2, 0.25, 0.5),
        (0.4, 0.0, 0.25),
    ]
    area = next(layer for layer in chart["layer"] if layer["mark"]["type"] == "area")
    assert (area["encoding"]["y"]["field"], area["encoding"]["y2"]["field"]) == ("certified", "attacked")


def test_tables_say_the_numbers() -> None:
    table = brackets.of_distances(RESULT)
    assert [(label, [cell.text for cell in cells]) for label, cells in table.rows] == [
        ("a", ["4", "3", "1", "0.0750", "0.300", "0.450"]),
        ("b", ["4", "3", "1", "0.0750", "0.300", "0.450"]),
    ]
    band = brackets.of_band(RESULT)
    assert [label for label, _ in band.rows] == ["a, certified", "a, attacked", "b, certified", "b, attacked"]
    assert [cell.text for cell in band.rows[1][1]] == ["75.0 % at 0.00", "50.0 % at 0.200", "25.0 % at 0.400"]


def test_the_page_has_both_charts_and_none_without_a_bracket(tmp_path: Path) -> None:
    (section,) = sections(check(RESULT))
    assert [card.id for card in section.cards] == ["chart-bracket", "chart-robust"]
    assert 'id="chart-robust"' in render(RESULT)
    assert sections(check({"title": "t", "arms": [{"name": "a"}]})) == []
    for name, chart in (("a.svg", brackets.distances(RESULT)), ("b.svg", brackets.robust(RESULT))):
        assert "<svg" in figures.save(chart, tmp_path / name).read_text()


def test_without_a_sample_that_is_right_there_is_a_sentence_and_no_chart() -> None:
    wrong = {"lower": [0.0, 0.0], "upper": [0.0, 0.0], "linearized": [-0.1, None]}
    band = [{"epsilon": 0.0, "certified": 0.0, "attacked": 0.0}]
    page = render({"title": "t", "norm": "l_2", "arms": [{"name": "a", "bracket": {**wrong, "band": band}}]})
    assert "None of the 2 samples is classified right" in page
    assert 'id="chart-bracket"' not in page
    assert 'id="chart-robust"' not in page


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("lower", [0.1], "result.arms[0].bracket.upper has length 4"),
        ("lower", [0.1, 0.0, 0.3, 0.25], "result.arms[0].bracket.lower[3] is 0.25"),
        ("lower", [0.1, -1.0, 0.3, 0.05], "result.arms[0].bracket.lower[1] is -1.0"),
        ("upper", [0.4, 0.0, "no", 0.2], "result.arms[0].bracket.upper[2] is 'no'"),
        ("band", [{"epsilon": 0.0}], "result.arms[0].bracket.band[0] has no 'certified'"),
        ("other", 1, "result.arms[0].bracket has the unknown key 'other'"),
    ],
)
def test_a_bracket_that_is_none_is_refused(key: str, value: Any, sentence: str) -> None:
    bad = copy.deepcopy(RESULT)
    bad["arms"][0]["bracket"][key] = value
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        check(bad)
