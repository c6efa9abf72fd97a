"""The idx format of MNIST and Fashion-MNIST: four bytes of magic, one big-endian int32 per dimension, then the bytes.

Magic 0, 0, 8, r says: unsigned bytes in r dimensions.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from jaxtyping import UInt8

from widemargin.data.files import File

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def parse(files: tuple[File, ...]) -> tuple[UInt8[np.ndarray, "n 1 h w"], UInt8[np.ndarray, " n"]]:
    """Images [n, 1, height, width] and labels [n] of an image and a label file."""
    images, labels = _array(files[0], dimensions=3), _array(files[1], dimensions=1)
    if len(images) != len(labels):
        raise ValueError(
            f"{files[0].source} holds {len(images)} images, but {files[1].source} holds {len(labels)} labels"
        )
    return images[:, np.newaxis], labels


def pack(
    images: UInt8[np.ndarray, "n 1 h w"], labels: UInt8[np.ndarray, " n"], names: tuple[str, ...]
) -> dict[str, bytes]:
    """The contents of the image and the label file that hold these arrays."""
    return {name: _bytes(array) for name, array in zip(names, (images[:, 0], labels), strict=True)}


def _array(file: File, *, dimensions: int) -> UInt8[np.ndarray, ...]:
    header = 4 + 4 * dimensions
    if len(file.content) < header or file.content[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(
            f"{file.source} begins with {file.content[:4].hex(' ') or 'nothing'}, expected the header of an idx file "
            f"of bytes in {dimensions} dimensions (00 00 08 0{dimensions})"
        )
    shape = struct.unpack(f">{dimensions}i", file.content[4:header])
    if min(shape) < 1 or len(file.content) - header != math.prod(shape):
        raise ValueError(
            f"{file.source} holds {len(file.content) - header:,} bytes of data, but its header says {list(shape)}"
        )
    return np.frombuffer(file.content, np.uint8, offset=header).reshape(shape)


def _bytes(array: UInt8[np.ndarray, ...]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()
