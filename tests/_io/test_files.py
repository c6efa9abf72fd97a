from __future__ import annotations

import json
import math
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widemargin._io.files import write_json, write_parquet, write_whole

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_json_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("json") / "value.json"
    assert write_json(path, value) == path
    assert json.loads(path.read_text(encoding="utf-8")) == value


def test_what_json_does_not_know_becomes_null(tmp_path: Path) -> None:
    value = {"a": math.nan, "b": [math.inf, (-math.inf, 1.0)], 3: {"c": np.float64("nan"), "d": "γ"}}
    text = write_json(tmp_path / "value.json", value).read_text(encoding="utf-8")
    assert json.loads(text) == {"a": None, "b": [None, [None, 1.0]], "3": {"c": None, "d": "γ"}}
    assert "γ" in text
    assert text.endswith("}\n")


def test_parquet_comes_back(tmp_path: Path) -> None:
    columns = {
        "label": np.array([3, 1, 2]),
        "margin": np.array([0.5, math.nan, -math.inf]),
        "small": np.array([1.5, 2.5, 3.5], dtype=np.float32),
    }
    path = write_parquet(tmp_path / "new" / "folder" / "table.parquet", columns)
    table = pq.read_table(path)
    assert table.column_names == list(columns)
    for name, column in columns.items():
        back = table[name].to_numpy()
        assert back.dtype == column.dtype
        np.testing.assert_array_equal(back, column)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'widemargin\[files\]'"):
        write_parquet(tmp_path / "table.parquet", {"a": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        part.write_text("half of it")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "result", fail)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = write_json(tmp_path / "result.json", 1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(path, {"a": object()})
    with pytest.raises(ValueError, match="expected length 1 but got length 2"):
        write_parquet(path, {"a": np.zeros(1), "b": np.zeros(2)})
    assert json.loads(path.read_text()) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_appears_in_one_step(tmp_path: Path) -> None:
    path = write_json(tmp_path / "result.json", "old")

    def write(part: Path) -> None:
        part.write_text("new")
        assert part.parent == path.parent  # so that the last step is a rename
        assert json.loads(path.read_text()) == "old"

    with path.open() as reader:  # whoever reads meanwhile has all of the old file
        write_whole(path, write)
        assert json.load(reader) == "old"
    assert path.read_text() == "new"


def test_others_may_read_it(tmp_path: Path) -> None:
    path = write_json(tmp_path / "result.json", 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
