"""Plain values against TypedDicts; `report/test_check.py` has a larger schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from widemargin._io.typed_json import check_type, read_json


class Inner(TypedDict):
    word: Literal["a", "b"]
    number: float | None


class Outer(TypedDict):
    inner: list[Inner]
    flag: bool
    free: NotRequired[dict[str, Any]]


GOOD = {"inner": [{"word": "a", "number": 1}, {"word": "b", "number": None}], "flag": True}


def test_what_fits_passes() -> None:
    check_type(GOOD, Outer, "it")
    check_type({**GOOD, "more": 1}, Outer, "it", unknown=True)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"flag": True}, "it has no 'inner'"),
        ({**GOOD, "more": 1}, "it has the unknown key 'more'"),
        ({**GOOD, "flag": 1}, "it.flag is 1"),
        ({**GOOD, "inner": [{"word": "c", "number": 1}]}, r"it.inner\[0\].word is 'c'"),
        ({**GOOD, "inner": [{"word": "a", "number": "1"}]}, r"it.inner\[0\].number is '1'"),
        ({**GOOD, "inner": [{"word": "a", "number": 1e200}]}, r"it.inner\[0\].number is 1e\+200"),
        ({**GOOD, "inner": [{"word": "a", "number": 10**400}]}, r"it.inner\[0\].number is"),
        ({**GOOD, "inner": [{"word": ["a"], "number": 1}]}, r"it.inner\[0\].word is \['a'\]"),
    ],
)
def test_what_does_not_fit_is_a_sentence_with_the_path(bad: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        check_type(bad, Outer, "it")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_a_file_that_is_no_json_is_a_sentence_with_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json"):
        read_json(tmp_path / "x.json")
