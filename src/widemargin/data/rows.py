"""Rows of an encoded image and a label, as the Hugging Face hub lays image sets out, to arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from widemargin._io.optional import import_optional
from widemargin.data.decode import to_array


def to_arrays(
    rows: Iterable[Mapping[str, Any]], shape: tuple[int, int, int], classes: int, source: str
) -> tuple[UInt8[np.ndarray, "n c h w"], UInt8[np.ndarray, " n"]]:
    """Images [n, channels, height, width] and labels [n] of rows `{"img" or "image": {"bytes": …}, "label": …}`."""
    images: list[UInt8[np.ndarray, "c h w"]] = []
    labels: list[int] = []
    for number, row in enumerate(rows):
        where = f"row {number} of {source}"
        image = to_array(image_bytes(row, where), shape[0], where)
        if image.shape != shape:
            raise ValueError(f"{where} is an image of shape {list(image.shape)}, expected {list(shape)}")
        label = row["label"]
        if not isinstance(label, int) or not 0 <= label < classes:
            raise ValueError(f"{where} has label {label!r}, expected 0..{classes - 1}")
        images.append(image)
        labels.append(label)
    if not images:
        raise ValueError(f"{source} has no rows, expected at least one")
    return np.stack(images), np.array(labels, dtype=np.uint8)


def image_bytes(row: Mapping[str, Any], where: str) -> bytes:
    """The encoded image of a row."""
    image = row[image_column(tuple(row), where)]
    content = image.get("bytes") if isinstance(image, Mapping) else None
    if not isinstance(content, bytes):
        raise ValueError(f"{where} has no bytes of an image")
    return content


def image_column(columns: Sequence[str], where: str) -> str:
    """The name of the column of images: `img` or `image`, beside which there must be a `label`."""
    for name in ("img", "image"):
        if name in columns and "label" in columns:
            return name
    raise ValueError(f"{where} has columns {', '.join(columns)}, expected img or image, and label")


def parquet_shards(folder: Path, split: str) -> tuple[Path, ...]:
    """The files `split-00000-of-00003.parquet` … of a folder in order, none missing; empty where there is none."""
    shards = {path.name: path for path in sorted(folder.glob(f"{split}-*-of-*.parquet"))}
    for name in shards:
        total = re.fullmatch(rf"{split}-\d+-of-(\d+)\.parquet", name)
        if total is None:
            raise ValueError(f"{folder / name} is not named as a shard, expected {split}-00000-of-00001.parquet")
        for k in range(int(total[1])):
            wanted = f"{split}-{k:05d}-of-{total[1]}.parquet"
            if wanted not in shards:
                raise FileNotFoundError(f"{folder / wanted} is missing, while {name} is there")
    return tuple(shards.values())


def parquet_rows(shards: tuple[Path, ...]) -> Iterator[dict[str, Any]]:
    """The rows of Parquet files, one after the other, without holding a whole file in memory."""
    parquet = import_optional("pyarrow.parquet", "reading Parquet")
    arrow = import_optional("pyarrow", "reading Parquet")
    for path in shards:
        try:
            with parquet.ParquetFile(path) as file:
                columns = [image_column(file.schema_arrow.names, str(path)), "label"]
                for batch in file.iter_batches(batch_size=1024, columns=columns):
                    yield from batch.to_pylist()
        except (arrow.ArrowInvalid, OSError) as error:
            raise ValueError(f"{path} is not a whole Parquet file: {error}") from error
