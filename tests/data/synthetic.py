"""Tiny files in the formats of the real releases, and a stand-in for the library that downloads them."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from widemargin.data import registry, releases
from widemargin.data.releases import Release

Bytes = NDArray[np.uint8]
Arrays = dict[str, tuple[Bytes, Bytes]]


def arrays(shape: tuple[int, int, int], *, train: int = 20, test: int = 10) -> Arrays:
    """Random images of `shape` and the labels 0..9 in turn."""
    rng = np.random.default_rng(0)
    return {
        split: (rng.integers(0, 256, (n, *shape), dtype=np.uint8), (np.arange(n) % 10).astype(np.uint8))
        for split, n in (("train", train), ("test", test))
    }


def idx_bytes(array: Bytes) -> bytes:
    """The idx format, written out dimension by dimension."""
    header = bytes([0, 0, 8, array.ndim])
    for size in array.shape:
        header += int(size).to_bytes(4, "big")
    return header + array.tobytes()


def idx_contents(data: Arrays) -> dict[str, bytes]:
    contents = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = data[split]
        contents[f"{prefix}-images-idx3-ubyte"] = idx_bytes(images[:, 0])
        contents[f"{prefix}-labels-idx1-ubyte"] = idx_bytes(labels)
    return contents


def cifar_contents(data: Arrays) -> dict[str, bytes]:
    """The five training files and the test file, record by record."""
    records = {
        split: [bytes([int(label)]) + image.tobytes() for image, label in zip(*data[split], strict=True)]
        for split in data
    }
    each = len(records["train"]) // 5
    contents = {f"data_batch_{k + 1}.bin": b"".join(records["train"][k * each : (k + 1) * each]) for k in range(5)}
    return contents | {"test_batch.bin": b"".join(records["test"])}


def tar_bytes(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write(folder: Path, contents: dict[str, bytes], *, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / name).write_bytes(content)


def encoded(image: Bytes, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(buffer, form, lossless=True)
    return buffer.getvalue()


def rows(data: tuple[Bytes, Bytes], column: str = "image", form: str = "PNG") -> list[dict[str, Any]]:
    return [
        {column: {"bytes": encoded(image, form), "path": None}, "label": int(label)}
        for image, label in zip(*data, strict=True)
    ]


def write_parquet(folder: Path, data: Arrays, column: str = "image", form: str = "PNG", *, shards: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split in data:
        parts = np.array_split(np.arange(len(data[split][1])), shards)
        for k, part in enumerate(parts):
            table = pa.Table.from_pylist(rows((data[split][0][part], data[split][1][part]), column, form))
            pq.write_table(table, folder / f"{split}-{k:05d}-of-{shards:05d}.parquet")


def publish(monkeypatch: pytest.MonkeyPatch, name: str, contents: dict[str, bytes]) -> None:
    """Make these contents, plain, gzipped and in a tar file, the original release of the data set `name`."""
    variable = {"mnist": "MNIST", "fashion-mnist": "FASHION_MNIST", "cifar10": "CIFAR10"}[name]
    release: Release = getattr(releases, variable)
    sums = {file: hashlib.md5(content).hexdigest() for file, content in contents.items()}
    monkeypatch.setattr(registry, variable, replace(release, sums=sums))


@dataclass
class FakeRows:
    """What `datasets.load_dataset` returns, as far as it is used."""

    items: list[dict[str, Any]]
    features: dict[str, Any]
    casts: list[tuple[str, bool]] = field(default_factory=list)

    def cast_column(self, column: str, feature: Any) -> FakeRows:
        return FakeRows(self.items, self.features, [*self.casts, (column, feature.decode)])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.casts, "images were to be left encoded"
        yield from self.items


@dataclass
class FakeHub:
    """A hub of repositories, each with its splits; every call is written down."""

    repositories: dict[str, dict[str, list[dict[str, Any]]]]
    calls: list[tuple[str, str, bool]] = field(default_factory=list)

    def load_dataset(self, repository: str, *, split: str, streaming: bool) -> FakeRows:
        self.calls.append((repository, split, streaming))
        if repository not in self.repositories:
            raise ConnectionError("no route to host")
        items = self.repositories[repository][split]
        names = SimpleNamespace(names=[f"class {k}" for k in range(10)])
        return FakeRows(items, dict.fromkeys(items[0], names))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
        module = ModuleType("datasets")
        module.load_dataset = self.load_dataset  # type: ignore[attr-defined]
        module.Image = lambda decode: SimpleNamespace(decode=decode)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", module)
        return self
