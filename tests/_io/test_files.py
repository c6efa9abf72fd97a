from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subprocesses import child_env
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


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_the_umask_decides_who_may_read_it(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        path = write_json(tmp_path / "result.json", 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_behind_a_symlink_is_replaced_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "result.json"
    link.symlink_to(tmp_path / "disk" / "result.json")
    assert write_json(link, 1) == link
    assert link.is_symlink()
    assert json.loads((tmp_path / "disk" / "result.json").read_text()) == 1


def test_text_that_is_no_unicode_is_written_escaped(tmp_path: Path) -> None:
    name = b"\xff.csv".decode("utf-8", "surrogateescape")  # as the operating system gives names that are not UTF-8
    path = write_json(tmp_path / "result.json", {"data": name})
    assert json.loads(path.read_text(encoding="utf-8")) == {"data": name}


WRITERS = {
    "json": "write_json(path, ['x' * 100] * 1000)",
    "parquet": "write_parquet(path, {'a': np.random.default_rng(0).random(10_000)})",
    "safetensors": "write_tensors(path, {'w': torch.ones(10_000)}, {})",
    "page": "html.write(path, 'x' * 10_000)",
}


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path: Path) -> None:
    """Files of at most 4 kB stand for a full disk: the operating system refuses the rest of a write as there."""
    code = f"""
import resource, torch, numpy as np
from pathlib import Path
from widemargin._io.files import write_json, write_parquet
from widemargin._io.tensors import write_tensors
from widemargin.report import html
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for name, call in {WRITERS!r}.items():
    path = Path({str(tmp_path)!r}) / name
    path.write_text("old")
    try:
        exec(call)
    except OSError as error:
        print(name, "|", type(error).__name__, "|", error)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=child_env(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[0] for line in lines] == list(WRITERS)
    for line, name in zip(lines, WRITERS, strict=True):
        assert "no space is left" in line
        assert str(tmp_path / name) in line
        assert (tmp_path / name).read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(WRITERS)
