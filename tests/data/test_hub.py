from __future__ import annotations

import pytest

from data.synthetic import FakeHub
from widemargin.data.hub import hub_rows


@pytest.mark.parametrize("column", ["img", "image"])
def test_images_are_left_encoded(monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    row = {column: {"bytes": b"x", "path": None}, "label": 0}
    FakeHub({"a/b": {"train": [row]}}).install(monkeypatch)
    rows = hub_rows("a/b", "train", streaming=True)
    assert rows.casts == [(column, False)]
    assert list(rows) == [row]


def test_another_layout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub({"a/b": {"train": [{"text": "x"}]}}).install(monkeypatch)
    with pytest.raises(ValueError, match="a/b has columns text, expected img or image, and label"):
        hub_rows("a/b", "train", streaming=False)


def test_without_the_extra_a_sentence_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"downloading a/b needs datasets, .* pip install 'widemargin\[hub\]'"):
        hub_rows("a/b", "train", streaming=False)
