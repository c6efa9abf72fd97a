from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data.synthetic import FakeHub, arrays, encoded, rows, write_parquet
from widemargin.data.images import decode_image, hub_rows, parquet_rows, parquet_shards, rows_to_arrays

SHAPE = (1, 28, 28)


def test_rows_of_several_files_in_order(tmp_path: Path) -> None:
    data = arrays(SHAPE)
    write_parquet(tmp_path, data, "img", shards=3)
    shards = parquet_shards(tmp_path, "train")
    assert [path.name for path in shards] == [f"train-{k:05d}-of-00003.parquet" for k in range(3)]
    images, labels = rows_to_arrays(parquet_rows(shards), SHAPE, 10, "there")
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
    with pytest.raises(ValueError, match=r"test-a-of-b\.parquet"):
        parquet_shards(tmp_path, "test")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, arrays(SHAPE))
    path = tmp_path / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=f"{path} is not"):
        next(parquet_rows((path,)))


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, arrays(SHAPE))
    path = tmp_path / "train-00000-of-00001.parquet"
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} is not"):
        list(parquet_rows((path,)))


def test_other_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"pixels": [1], "label": [1]}), path)
    with pytest.raises(ValueError, match=f"{path} has columns pixels, label,"):
        next(parquet_rows((path,)))


IMAGE = rows(arrays(SHAPE)["test"])[0]["image"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"image": IMAGE, "label": 10}, "row 1 of there has label 10,"),
        ({"image": IMAGE, "label": None}, "row 1 of there has label None"),
        ({"image": {"bytes": None, "path": "x.png"}, "label": 0}, r"row 1 of there .*bytes"),
        ({"image": {"bytes": b"x", "path": None}, "label": 0}, "row 1 of there is not"),
        (rows(arrays((1, 27, 28))["test"])[0], r"row 1 of there .*\[1, 27, 28\]"),
        ({"image": IMAGE}, "row 1 of there has columns image,"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        rows_to_arrays([{"image": IMAGE, "label": 0}, row], SHAPE, 10, "there")


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="there has no rows"):
        rows_to_arrays([], SHAPE, 10, "there")


def test_without_pyarrow_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path, arrays(SHAPE))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pyarrow.*widemargin\[files\]"):
        next(parquet_rows(parquet_shards(tmp_path, "train")))


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_lossless_images_come_back_as_they_were(form: str) -> None:
    for image in arrays((3, 32, 32))["test"][0]:
        np.testing.assert_array_equal(decode_image(encoded(image, form), 3, "it"), image)


def test_grey_images_have_one_channel() -> None:
    (image, *_) = arrays((1, 28, 28))["test"][0]
    np.testing.assert_array_equal(decode_image(encoded(image), 1, "it"), image)
    assert decode_image(encoded(image), 3, "it").shape == (3, 28, 28)


def test_sixteen_bits_are_refused_instead_of_clipped() -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 4), 1000, dtype=np.uint16)).save(file, "PNG")
    with pytest.raises(ValueError, match=r"it has pixels of mode 'I;16', expected 8 bits"):
        decode_image(file.getvalue(), 1, "it")


@pytest.mark.parametrize("shape", [(40, 80), (80, 40), (7, 9), (64, 64), (1, 50)])
def test_the_middle_is_cut_out(shape: tuple[int, int]) -> None:
    height, width = shape
    image = np.full((3, height, width), 200, np.uint8)
    cut = decode_image(encoded(image), 3, "it", size=32)
    assert cut.shape == (3, 32, 32)
    assert int(cut.min()) == int(cut.max()) == 200


def test_the_cut_is_in_the_middle() -> None:
    image = np.zeros((3, 64, 128), np.uint8)
    image[:, :, 64:] = 255  # dark on the left, bright on the right
    cut = decode_image(encoded(image), 3, "it", size=56)  # 56/0.875 = 64: no scaling
    np.testing.assert_array_equal(cut, image[:, 4:60, 36:92])


def broken_images() -> list[bytes]:
    buffer = io.BytesIO()
    Image.new("RGB", (50, 50)).save(buffer, "BMP")  # whole, but of a kind that no data set here has
    png = encoded(arrays((3, 32, 32))["test"][0][0])
    return [png[: len(png) // 2], b"", b"<html>", buffer.getvalue()]


@pytest.mark.parametrize("content", broken_images())
def test_what_is_no_whole_image_is_named(content: bytes) -> None:
    with pytest.raises(ValueError, match="row 3 of that is not"):
        decode_image(content, 3, "row 3 of that")


@pytest.mark.parametrize("column", ["img", "image"])
def test_images_are_left_encoded(monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    row = {column: {"bytes": b"x", "path": None}, "label": 0}
    FakeHub({"a/b": {"train": [row]}}).install(monkeypatch)
    rows = hub_rows("a/b", "train", streaming=True)
    assert rows.casts == [(column, False)]
    assert list(rows) == [row]


def test_another_layout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub({"a/b": {"train": [{"text": "x"}]}}).install(monkeypatch)
    with pytest.raises(ValueError, match="a/b has columns text,"):
        hub_rows("a/b", "train", streaming=False)


def test_without_the_extra_a_sentence_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"datasets.*widemargin\[hub\]"):
        hub_rows("a/b", "train", streaming=False)
