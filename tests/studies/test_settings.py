"""Settings laid over one another."""

from __future__ import annotations

import math
from typing import Any

import pytest

from widemargin.studies.settings import check_plain, digest, overlay


def test_later_layers_win_and_mappings_merge() -> None:
    lower = {"data": {"name": "mnist", "flips": 0.0}, "steps": 10}
    assert overlay(lower, {"data": {"flips": 0.2}}, {"data.train": 5, "steps": 3}) == {
        "data": {"name": "mnist", "flips": 0.2, "train": 5},
        "steps": 3,
    }
    assert lower == {"data": {"name": "mnist", "flips": 0.0}, "steps": 10}


def test_another_name_replaces_the_whole_mapping() -> None:
    lower = {"loss": {"name": "odn", "r": 2.0}}
    assert overlay(lower, {"loss": {"name": "hinge", "gamma": 1.0}}) == {"loss": {"name": "hinge", "gamma": 1.0}}
    assert overlay(lower, {"loss": {"name": "odn", "mu": 1.0}}) == {"loss": {"name": "odn", "r": 2.0, "mu": 1.0}}


def test_tuples_and_lists_are_the_same() -> None:
    assert overlay({"a": (1, (2,))}) == {"a": [1, [2]]}
    assert digest({"a": (1, 2)}) == digest({"a": [1, 2]})


@pytest.mark.parametrize(
    ("value", "said"),
    [({"p": math.inf}, "write 'inf'"), ({"a": [object()]}, "expected plain values"), ({1: 2}, "expected a word")],
)
def test_what_json_does_not_know_is_refused(value: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        check_plain("settings", value)
