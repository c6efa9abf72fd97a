"""Binary formats of image sets: idx (MNIST, Fashion-MNIST) and the binary version of CIFAR-10.

- idx: four bytes of magic, one big-endian int32 per dimension, then the data. Magic 0, 0, 8, r stands for unsigned
  bytes in r dimensions.
- CIFAR-10: records of one label byte and 3·32·32 bytes of red, green and blue, 10,000 a file.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from jaxtyping import UInt8

from widemargin.data.files import File

IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CIFAR_FILES = {
    "train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
    "test": ("test_batch.bin",),
}
CIFAR_RECORD = 1 + 3 * 32 * 32


def parse_idx(files: tuple[File, ...]) -> tuple[UInt8[np.ndarray, "n 1 h w"], UInt8[np.ndarray, " n"]]:
    """Images [n, 1, height, width] and labels [n] of an image and a label file."""
    images, labels = _array(files[0], dimensions=3), _array(files[1], dimensions=1)
    if len(images) != len(labels):
        raise ValueError(f"{files[0].source} has {len(images)} images, but {files[1].source} has {len(labels)} labels")
    return images[:, np.newaxis], labels


def pack_idx(
    images: UInt8[np.ndarray, "n 1 h w"], labels: UInt8[np.ndarray, " n"], names: tuple[str, ...]
) -> dict[str, bytes]:
    """The contents of the image and the label file of these arrays."""
    return {
        name: bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()
        for name, array in zip(names, (images[:, 0], labels), strict=True)
    }


def parse_cifar(files: tuple[File, ...]) -> tuple[UInt8[np.ndarray, "n 3 32 32"], UInt8[np.ndarray, " n"]]:
    """Images [n, 3, 32, 32] and labels [n] of all files, one after the other."""
    for file in files:
        size = len(file.content)
        if size == 0 or size % CIFAR_RECORD:
            raise ValueError(f"{file.source} has {size:,} bytes, expected a multiple of {CIFAR_RECORD}, one per image")
    records = np.concatenate([np.frombuffer(file.content, np.uint8).reshape(-1, CIFAR_RECORD) for file in files])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy()


def pack_cifar(
    images: UInt8[np.ndarray, "n 3 32 32"], labels: UInt8[np.ndarray, " n"], names: tuple[str, ...]
) -> dict[str, bytes]:
    """The contents of the files of these arrays, in equal parts."""
    records = np.concatenate([labels[:, np.newaxis], images.reshape(len(images), -1)], axis=1)
    return {name: part.tobytes() for name, part in zip(names, np.array_split(records, len(names)), strict=True)}


def _array(file: File, *, dimensions: int) -> UInt8[np.ndarray, ...]:
    header = 4 + 4 * dimensions
    if len(file.content) < header or file.content[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(
            f"{file.source} begins with {file.content[:4].hex(' ') or 'nothing'}, expected the header of an idx file "
            f"of bytes in {dimensions} dimensions (00 00 08 0{dimensions})"
        )
    shape = struct.unpack(f">{dimensions}i", file.content[4:header])
    size = len(file.content) - header
    if min(shape) < 1 or size != math.prod(shape):
        raise ValueError(f"{file.source} has {size:,} bytes of data, but its header says {list(shape)}")
    return np.frombuffer(file.content, np.uint8, offset=header).reshape(shape)
