"""CIFAR-10's binary version: records of one label byte and 3·32·32 bytes of red, green and blue, 10,000 a file."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

from widemargin.data.files import File

FILES = {
    "train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
    "test": ("test_batch.bin",),
}
RECORD = 1 + 3 * 32 * 32


def parse(files: tuple[File, ...]) -> tuple[UInt8[np.ndarray, "n 3 32 32"], UInt8[np.ndarray, " n"]]:
    """Images [n, 3, 32, 32] and labels [n] of all the files, one after the other."""
    for file in files:
        if len(file.content) == 0 or len(file.content) % RECORD:
            raise ValueError(
                f"{file.source} has {len(file.content):,} bytes, expected a multiple of {RECORD}, one record an image"
            )
    records = np.concatenate([np.frombuffer(file.content, np.uint8).reshape(-1, RECORD) for file in files])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy()


def pack(
    images: UInt8[np.ndarray, "n 3 32 32"], labels: UInt8[np.ndarray, " n"], names: tuple[str, ...]
) -> dict[str, bytes]:
    """The contents of the files that hold these arrays, in equal parts."""
    records = np.concatenate([labels[:, np.newaxis], images.reshape(len(images), -1)], axis=1)
    return {name: part.tobytes() for name, part in zip(names, np.array_split(records, len(names)), strict=True)}
