from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.synthetic import arrays, rows, write_parquet
from widemargin.data.rows import parquet_rows, parquet_shards, to_arrays

SHAPE = (1, 28, 28)


def test_rows_of_several_files_in_order(tmp_path: Path) -> None:
    data = arrays(SHAPE)
    write_parquet(tmp_path, data, "img", shards=3)
    shards = parquet_shards(tmp_path, "train")
    assert [path.name for path in shards] == [f"train-{k:05d}-of-00003.parquet" for k in range(3)]
    images, labels = to_arrays(parquet_rows(shards), SHAPE, 10, "there")
    np.testing.assert_array_equal(images, data["train"][0])
    np.testing.assert_array_equal(labels, data["train"][1])


def test_other_columns_are_left_alone(tmp_path: Path) -> None:
    row = rows(arrays(SHAPE)["test"])[0]
    pq.write_table(pa.Table.from_pylist([row | {"other": 1}]), tmp_path / "x.parquet")
    assert list(next(parquet_rows((tmp_path / "x.parquet",)))) == ["image", "label"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert parquet_shards(tmp_path, "train") == ()
    write_parquet(tmp_path, arrays(SHAPE), shards=3)
    (tmp_path / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/train-00001-of-00003.parquet is missing"):
        parquet_shards(tmp_path, "train")
    (tmp_path / "test-a-of-b.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"test-a-of-b\.parquet is not named as a shard"):
        parquet_shards(tmp_path, "test")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, arrays(SHAPE))
    path = tmp_path / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=f"{path} is not a whole Parquet file"):
        next(parquet_rows((path,)))


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, arrays(SHAPE))
    path = tmp_path / "train-00000-of-00001.parquet"
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} is not a whole Parquet file"):
        list(parquet_rows((path,)))


def test_other_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"pixels": [1], "label": [1]}), path)
    with pytest.raises(ValueError, match=f"{path} has columns pixels, label, expected img or image, and label"):
        next(parquet_rows((path,)))


IMAGE = rows(arrays(SHAPE)["test"])[0]["image"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"image": IMAGE, "label": 10}, r"row 1 of there has label 10, expected 0\.\.9"),
        ({"image": IMAGE, "label": None}, "row 1 of there has label None"),
        ({"image": {"bytes": None, "path": "x.png"}, "label": 0}, "row 1 of there has no bytes of an image"),
        ({"image": {"bytes": b"x", "path": None}, "label": 0}, "row 1 of there is not a whole"),
        (rows(arrays((1, 27, 28))["test"])[0], r"row 1 of there is an image of shape \[1, 27, 28\]"),
        ({"image": IMAGE}, "row 1 of there has columns image, expected"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        to_arrays([{"image": IMAGE, "label": 0}, row], SHAPE, 10, "there")


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="there has no rows"):
        to_arrays([], SHAPE, 10, "there")


def test_without_pyarrow_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path, arrays(SHAPE))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"reading Parquet needs pyarrow.*pip install 'widemargin\[files\]'"):
        next(parquet_rows(parquet_shards(tmp_path, "train")))
