"""Images as PNG and as data URIs, with zlib and NumPy alone."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import UInt8

from widemargin.report.schema import Json

Image: TypeAlias = Sequence[Json] | np.ndarray
"""Numbers in [0, 1], [h, w] or [1, h, w] in gray, [3, h, w] in colour: nested lists or an array."""

_GRAY, _RGB = 0, 2  # the colour types of the PNG specification, section 11.2.2


def encode(image: Image) -> bytes:
    """The PNG file of `image`, with 8 bits per value."""
    pixels = _pixels(image)
    height, width, channels = pixels.shape
    # Each row begins with the number of its filter; 0 is none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, _RGB if channels == 3 else _GRAY, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(rows.tobytes(), 9), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks.items())


def data_uri(image: Image) -> str:
    """The PNG of `image` as a data URI."""
    return "data:image/png;base64," + base64.b64encode(encode(image)).decode("ascii")


def _pixels(image: Image) -> UInt8[np.ndarray, "h w c"]:
    try:
        values = np.asarray(image, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"image is not an array of numbers: {error}") from error
    if values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or values.shape[0] not in (1, 3) or values.size == 0:
        raise ValueError(f"image has shape {list(np.shape(image))}, expected [h, w], [1, h, w] or [3, h, w]")
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        raise ValueError(f"image has values from {values.min():g} to {values.max():g}, expected numbers in [0, 1]")
    return np.ascontiguousarray(np.rint(values * 255).astype(np.uint8).transpose(1, 2, 0))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
