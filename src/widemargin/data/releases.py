"""Image sets read from their original releases: MNIST, Fashion-MNIST and CIFAR-10.

The checksums are those of the unpacked files. Those of CIFAR-10 are published; those of the idx files belong to the
contents of `.gz` files with the published checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import UInt8

from widemargin.data.files import (
    File,
    MissingDataError,
    check_md5,
    files_not_found,
    read_files,
    resolve_root,
    search_folders,
)
from widemargin.data.formats import CIFAR_FILES, IDX_FILES, pack_cifar, pack_idx, parse_cifar, parse_idx
from widemargin.data.images import Row, hub_rows, parquet_rows, parquet_shards, rows_to_arrays
from widemargin.data.samples import Data, Samples

Images: TypeAlias = UInt8[np.ndarray, "n c h w"]
Labels: TypeAlias = UInt8[np.ndarray, " n"]
Arrays: TypeAlias = tuple[Images, Labels]


@dataclass(frozen=True, kw_only=True)
class Release:
    """An original release: its files, their format, and its name on the Hugging Face hub."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    files: Mapping[str, tuple[str, ...]]  # the unpacked files of each split
    archive: str | None  # a tar file with all of them
    sums: Mapping[str, str]  # MD5 of each unpacked file
    folders: tuple[str, ...]  # names of folders that may contain the files
    hub: str  # the repository on the Hugging Face hub
    parse: Callable[[tuple[File, ...]], Arrays]
    pack: Callable[[Images, Labels, tuple[str, ...]], dict[str, bytes]]  # the inverse of `parse`


def load_release(release: Release, root: str | Path | None, *, verify: bool) -> Data:
    """The two splits of a release, x in [0, 1] as float32 [n, channels, height, width], y as int64.

    Read from the original files, else from Parquet files, else from the hub, and verified in each case.
    """
    folder = resolve_root(root)
    splits = _local(release, folder, verify) or _downloaded(release, folder, verify)
    parts = {
        split: Samples(torch.tensor(images, dtype=torch.float32).div_(255), torch.tensor(labels, dtype=torch.int64))
        for split, (images, labels) in splits.items()
    }
    return Data(release.name, parts["train"], parts["test"], release.classes, (0.0, 1.0))


def _local(release: Release, root: Path | None, verify: bool) -> dict[str, Arrays] | None:
    for folder in search_folders(root, release.folders) if root is not None else ():
        if splits := _from_originals(release, folder, verify) or _from_parquet(release, folder, verify):
            return splits
    return None


def _from_originals(release: Release, folder: Path, verify: bool) -> dict[str, Arrays] | None:
    names = tuple(name for split in release.files.values() for name in split)
    files = read_files(folder, names, archive=release.archive, sums=release.sums if verify else None)
    if files is None:
        return None
    splits = {split: release.parse(tuple(files[name] for name in part)) for split, part in release.files.items()}
    for split, arrays in splits.items():
        _check_arrays(release, *arrays, f"the {split} files in {folder}")
    return splits


def _from_parquet(release: Release, folder: Path, verify: bool) -> dict[str, Arrays] | None:
    shards = {split: parquet_shards(folder, split) for split in release.files}
    if not any(shards.values()):
        return None
    for split, paths in shards.items():
        if not paths:
            raise FileNotFoundError(f"{folder} has no {split}-*.parquet, while other files of this data set exist")
    return {
        split: _from_rows(release, split, parquet_rows(paths), f"{folder}/{split}-*.parquet", verify)
        for split, paths in shards.items()
    }


def _downloaded(release: Release, root: Path | None, verify: bool) -> dict[str, Arrays]:
    try:
        splits = {split: hub_rows(release.hub, split, streaming=False) for split in release.files}
    except (ImportError, MissingDataError) as error:
        raise files_not_found(release.name, root, "its original files or Parquet", error) from error
    return {
        split: _from_rows(release, split, rows, f"the {split} split of {release.hub}", verify)
        for split, rows in splits.items()
    }


def _from_rows(release: Release, split: str, rows: Iterable[Row], source: str, verify: bool) -> Arrays:
    """Arrays of rows. Rows have no checksum, so the original files are rebuilt from them and compared."""
    arrays = rows_to_arrays(rows, release.shape, len(release.classes), source)
    if verify:
        for name, content in release.pack(*arrays, release.files[split]).items():
            check_md5(content, release.sums[name], f"{name} as rebuilt from {source}")
    return arrays


def _check_arrays(release: Release, images: Images, labels: Labels, source: str) -> None:
    if images.shape[1:] != release.shape:
        raise ValueError(f"{source} have images of shape {list(images.shape[1:])}, expected {list(release.shape)}")
    last = len(release.classes) - 1
    if len(outside := np.flatnonzero(labels > last)):
        raise ValueError(f"{source} have label {labels[outside[0]]} at index {outside[0]}, expected 0..{last}")


def _idx_release(name: str, classes: tuple[str, ...], folders: tuple[str, ...], hub: str, *, sums: str) -> Release:
    """A release of MNIST's format, with the sums of its unpacked files in their order."""
    files = [file for split in IDX_FILES.values() for file in split]
    return Release(
        name=name,
        classes=classes,
        shape=(1, 28, 28),
        files=IDX_FILES,
        archive=None,
        sums=dict(zip(files, sums.split(), strict=True)),
        folders=folders,
        hub=hub,
        parse=parse_idx,
        pack=pack_idx,
    )


MNIST = _idx_release(
    "mnist",
    tuple("0123456789"),
    ("mnist", "MNIST", "mnist/mnist"),
    "ylecun/mnist",
    sums=(
        "6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624 "
        "2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637"
    ),
)

FASHION_MNIST = _idx_release(
    "fashion-mnist",
    ("T-shirt/top", *["Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag"], "Ankle boot"),
    ("fashion-mnist", "FashionMNIST", "fashion_mnist", "fashion_mnist/fashion_mnist"),
    "zalando-datasets/fashion_mnist",
    sums=(
        "f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9 "
        "8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965"
    ),
)

CIFAR10 = Release(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    shape=(3, 32, 32),
    files=CIFAR_FILES,
    archive="cifar-10-binary.tar.gz",
    sums={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    folders=("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10/plain_text", "plain_text"),
    hub="uoft-cs/cifar10",
    parse=parse_cifar,
    pack=pack_cifar,
)
