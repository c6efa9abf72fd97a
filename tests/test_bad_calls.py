"""Every bad call of the table ends in the error of its row, in a line of the package's own that names the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bad_call_table as table
from bad_call_table import Cell, judged, outcome
from valid_calls import CALLS
from widemargin.losses import Hinge

WITHOUT = {name for names in table.WITHOUT.values() for name in names.split()}


def test_every_public_function_has_a_row() -> None:
    rows = {part for name in CALLS for part in name.split(".")}
    assert table.public_names() - rows - WITHOUT == set()


def test_every_argument_has_a_kind() -> None:
    missing = [(name, one) for name in CALLS for one in table.parameters(name) if table.kind_of(name, one) is None]
    assert missing == []


@pytest.mark.usefixtures("untyped")
def test_the_calls_are_valid_without_the_bad_argument() -> None:
    for name in CALLS.keys() - {"fit", "data.load_files"}:  # `fit` has tests of its own, the other needs a file
        table.function(name)(**CALLS[name])


@pytest.mark.usefixtures("untyped")
def test_every_bad_call_gets_its_sentence() -> None:
    assert [wrong for cell in table.cells() if (wrong := outcome(cell))] == []


@pytest.mark.usefixtures("untyped")
def test_what_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(x: Any) -> int:
        return len(x)

    def ours(x: Any) -> None:
        Hinge(gamma=x)

    cell = Cell("norms.dual", "p", "p", "nan")
    assert outcome(cell) == ""
    monkeypatch.setattr(table, "function", lambda _: lambda p: silent([p]))
    assert "no error" in outcome(cell)
    for call, errors, words in (
        (lambda: torch.zeros(2) @ torch.zeros(3), (RuntimeError,), "others' words"),
        (lambda: silent(3), (TypeError,), "others' words"),
        (lambda: ours(None), (ValueError,), "another type"),
        (lambda: ours(None), (TypeError,), "something else"),
    ):
        with pytest.raises(Exception) as raised:
            call()
        assert words in judged(raised.value, ["x"], errors)
