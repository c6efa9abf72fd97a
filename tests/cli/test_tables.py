"""Tables stay whole in 80 columns, whatever the names and numbers."""

from __future__ import annotations

import io

import torch
from rich.console import Console
from rich.table import Table

from widemargin.cli import tables
from widemargin.margins import Measurement

TINY = torch.tensor([-1.2345e-5, -2.1234e-12, -9.87e-8, float("nan")])
LABELS = torch.tensor([0, 1, 0, 1])
RESULT = Measurement(
    margins={"group1.block1.shortcut.conv": TINY, "[red]x": -1e12 * TINY},
    output=TINY.nan_to_num(),
    labels=LABELS,
    predictions=1 - LABELS,
    settings={"p": float("inf")},
)


def lines(table: Table) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=80, markup=False, emoji=False).print(table)
    return file.getvalue().splitlines()


def test_long_names_are_folded_and_wide_numbers_kept() -> None:
    found = lines(tables.by_place(RESULT))
    assert max(map(len, found)) <= 80
    assert "".join(line[:11].strip() for line in found[4:7]) == "group1.block1.shortcut.conv"
    assert found[4].split()[1:] == [*("-4.15e-06", "5.80e-06", "-0.716", "-1.23e-05", "-9.87e-08", "100.0", "%", "1")]
    assert "[red]x" in "\n".join(found)
    assert "…" not in "\n".join(found)


def test_the_output_margin_is_the_last_row() -> None:
    found = "\n".join(lines(tables.by_place(RESULT)))
    assert found.index("[red]x") < found.index("f_y − max")


def test_names_of_classes_stand_beside_their_numbers() -> None:
    assert tables.label_of(1, ["a", "b"]) == "1 b"
    assert tables.label_of(1, ["0", "1"]) == "1"
    assert tables.label_of(2, ["a", "b"]) == "2"
    assert tables.label_of(-1.0, ["a", "b"]) == "-1 a"
    found = "\n".join(lines(tables.by_class(RESULT, "[red]x", ["cat", "dog"])))
    assert "l_inf distance at [red]x, class by class" in found
    assert "0 cat" in found
    assert "1 dog" in found


def test_hardest_are_sorted_and_those_without_a_margin_last() -> None:
    found = [line.split() for line in lines(tables.hardest(RESULT, 9, ["cat", "dog"]))]
    found = [row for row in found if row and row[0].isdigit()]
    assert [row[0] for row in found] == ["0", "2", "1", "3"]
    assert found[0] == ["0", "0", "cat", "1", "dog", "-1.23e-05"]
    assert found[3][-1] == "–"
