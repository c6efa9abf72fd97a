"""A release to tensors: from its original files, else from Parquet, else from the hub; verified each way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from widemargin.data.checksums import check_md5
from widemargin.data.files import read_files
from widemargin.data.hub import hub_rows
from widemargin.data.releases import Release
from widemargin.data.roots import VARIABLE, folders, resolve
from widemargin.data.rows import parquet_rows, parquet_shards, to_arrays
from widemargin.data.samples import Data, Samples

Arrays = tuple[UInt8[np.ndarray, "n c h w"], UInt8[np.ndarray, " n"]]


def load_release(release: Release, root: str | Path | None, *, verify: bool) -> Data:
    """The release's two splits, x in [0, 1] as float32 [n, channels, height, width], y as int64."""
    place = resolve(root)
    splits = _local(release, place, verify) or _downloaded(release, place, verify)
    parts = {split: _samples(*arrays) for split, arrays in splits.items()}
    return Data(release.name, parts["train"], parts["test"], release.classes, (0.0, 1.0))


def _local(release: Release, root: Path | None, verify: bool) -> dict[str, Arrays] | None:
    for folder in folders(root, release.folders) if root is not None else ():
        found = _from_originals(release, folder, verify) or _from_parquet(release, folder, verify)
        if found is not None:
            return found
    return None


def _from_originals(release: Release, folder: Path, verify: bool) -> dict[str, Arrays] | None:
    names = tuple(name for split in release.files.values() for name in split)
    files = read_files(folder, names, archive=release.archive, sums=release.sums if verify else None)
    if files is None:
        return None
    splits = {split: release.parse(tuple(files[name] for name in part)) for split, part in release.files.items()}
    for split, (images, labels) in splits.items():
        _check_fits(release, images, labels, f"the {split} files in {folder}")
    return splits


def _from_parquet(release: Release, folder: Path, verify: bool) -> dict[str, Arrays] | None:
    shards = {split: parquet_shards(folder, split) for split in release.files}
    if not any(shards.values()):
        return None
    splits: dict[str, Arrays] = {}
    for split, paths in shards.items():
        if not paths:
            raise FileNotFoundError(f"{folder} has no {split}-*.parquet, while other files of this data set are there")
        source = f"{folder}/{split}-*.parquet"
        splits[split] = to_arrays(parquet_rows(paths), release.shape, len(release.classes), source)
        _check_rows(release, split, splits[split], source, verify)
    return splits


def _downloaded(release: Release, root: Path | None, verify: bool) -> dict[str, Arrays]:
    splits: dict[str, Arrays] = {}
    for split in release.files:
        try:
            rows = hub_rows(release.hub, split, streaming=False)
        except ImportError as error:
            raise FileNotFoundError(_not_found(release, root)) from error
        source = f"the {split} split of {release.hub}"
        splits[split] = to_arrays(rows, release.shape, len(release.classes), source)
        _check_rows(release, split, splits[split], source, verify)
    return splits


def _not_found(release: Release, root: Path | None) -> str:
    where = (
        f"{root} has no files of {release.name}"
        if root
        else f"{release.name} has no root: neither root= nor {VARIABLE}"
    )
    return f"{where}, expected its original files or Parquet; or pip install 'widemargin[hub]' to download it"


def _check_rows(release: Release, split: str, arrays: Arrays, source: str, verify: bool) -> None:
    """Rows carry no checksum of the release, so the original files are rebuilt from them and compared."""
    if verify:
        for name, content in release.pack(*arrays, release.files[split]).items():
            check_md5(content, release.sums[name], f"{name} as rebuilt from {source}")


def _check_fits(
    release: Release, images: UInt8[np.ndarray, "n c h w"], labels: UInt8[np.ndarray, " n"], source: str
) -> None:
    if images.shape[1:] != release.shape:
        raise ValueError(f"{source} hold images of shape {list(images.shape[1:])}, expected {list(release.shape)}")
    outside = np.flatnonzero(labels >= len(release.classes))
    if len(outside):
        at = int(outside[0])
        raise ValueError(f"{source} have label {labels[at]} at index {at}, expected 0..{len(release.classes) - 1}")


def _samples(images: UInt8[np.ndarray, "n c h w"], labels: UInt8[np.ndarray, " n"]) -> Samples:
    return Samples(torch.tensor(images, dtype=torch.float32).div_(255), torch.tensor(labels, dtype=torch.int64))
