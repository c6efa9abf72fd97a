"""Encoded images: decoding one, and rows of an image and a label from Parquet files or the Hugging Face hub."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt8

from widemargin._io.optional import import_optional
from widemargin.data.files import MissingDataError

Row: TypeAlias = Mapping[str, object]
_FORMATS = ("PNG", "WEBP", "JPEG")  # Pillow would try forty others


def decode_image(content: bytes, channels: int, source: str, *, size: int | None = None) -> UInt8[np.ndarray, "c h w"]:
    """The image as bytes [channels, height, width]: grey for 1 channel, red, green and blue for 3.

    With `size`, the shorter side is scaled to size/0.875 and the central size × size pixels are cropped, as is usual
    in evaluations on ImageNet.
    """
    with _opened(content, source) as opened:
        mode, image = opened.mode, opened.convert("L" if channels == 1 else "RGB")
    if mode.startswith(("I", "F")):  # Pillow would clip them at 255
        raise ValueError(f"{source} has pixels of mode {mode!r}, expected 8 bits per channel")
    if size is not None:
        scale = size / 0.875 / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        left, top = (width - size) // 2, (height - size) // 2
        bilinear = import_optional("PIL.Image", "reading images").Resampling.BILINEAR
        image = image.resize((width, height), bilinear)
        image = image.crop((left, top, left + size, top + size))
    array = np.asarray(image)
    return array[np.newaxis] if channels == 1 else array.transpose(2, 0, 1)


@contextmanager
def _opened(content: bytes, source: str) -> Iterator[Any]:
    """The image of Pillow; errors inside the `with` block name `source`."""
    image_module = import_optional("PIL.Image", "reading images")
    try:
        with image_module.open(io.BytesIO(content), formats=_FORMATS) as opened:
            yield opened
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{source} is not a complete PNG, WebP or JPEG image: {error}") from error


def image_channels(content: bytes, source: str) -> int:
    """1 for a grey image, else 3."""
    with _opened(content, source) as image:
        return 1 if image.mode in ("1", "L", "I", "I;16", "F") else 3


def rows_to_arrays(
    rows: Iterable[Row], shape: tuple[int, int, int], classes: int, source: str
) -> tuple[UInt8[np.ndarray, "n c h w"], UInt8[np.ndarray, " n"]]:
    """Images [n, channels, height, width] and labels [n] of rows `{"img" or "image": {"bytes": …}, "label": …}`."""
    images: list[UInt8[np.ndarray, "c h w"]] = []
    labels: list[int] = []
    for number, row in enumerate(rows):
        where = f"row {number} of {source}"
        image = decode_image(image_bytes(row, where), shape[0], where)
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


def image_bytes(row: Row, where: str) -> bytes:
    """The encoded image of a row."""
    image = row[_image_column(tuple(row), where)]
    content = image.get("bytes") if isinstance(image, Mapping) else None
    if not isinstance(content, bytes):
        raise ValueError(f"{where} has no bytes of an image")
    return content


def parquet_shards(folder: Path, split: str) -> tuple[Path, ...]:
    """The files `split-00000-of-00003.parquet` … of a folder in order; empty where all are missing."""
    shards = {path.name: path for path in sorted(folder.glob(f"{split}-*-of-*.parquet"))}
    for name in shards:
        total = re.fullmatch(rf"{split}-\d+-of-(\d+)\.parquet", name)
        if total is None:
            raise ValueError(f"{folder / name} is not named as a shard, expected {split}-00000-of-00001.parquet")
        for k in range(int(total[1])):
            expected = f"{split}-{k:05d}-of-{total[1]}.parquet"
            if expected not in shards:
                raise FileNotFoundError(f"{folder / expected} is missing, while {name} exists")
    return tuple(shards.values())


def parquet_rows(shards: tuple[Path, ...]) -> Iterator[Row]:
    """The rows of Parquet files, one after the other, without a whole file in memory."""
    parquet = import_optional("pyarrow.parquet", "reading Parquet")
    arrow = import_optional("pyarrow", "reading Parquet")
    for path in shards:
        try:
            with parquet.ParquetFile(path) as file:
                columns = [_image_column(file.schema_arrow.names, str(path)), "label"]
                for batch in file.iter_batches(batch_size=1024, columns=columns):
                    yield from batch.to_pylist()
        except (arrow.ArrowInvalid, OSError) as error:
            raise ValueError(f"{path} is not a complete Parquet file: {error}") from error


def hub_rows(repository: str, split: str, *, streaming: bool) -> Any:
    """The rows of a split on the Hugging Face hub: `{"image": {"bytes": …, "path": …}, "label": …}`.

    Downloaded once into the cache of the library `datasets`, which an interrupted download leaves unchanged; with
    `streaming`, fetched as they are read.
    """
    datasets = import_optional("datasets", f"downloading {repository}")
    try:
        rows = datasets.load_dataset(repository, split=split, streaming=streaming)
    except OSError as error:
        raise MissingDataError(f"{repository} could not be downloaded from the Hugging Face hub: {error}") from error
    column = _image_column(tuple(rows.features), repository)
    return rows.cast_column(column, datasets.Image(decode=False))


def _image_column(columns: Sequence[str], where: str) -> str:
    for name in ("img", "image"):
        if name in columns and "label" in columns:
            return name
    raise ValueError(f"{where} has columns {', '.join(columns)}, expected img or image, and label")
