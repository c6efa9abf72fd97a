"""ImageNet from folders or the hub, with images read on access."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from widemargin.checks import check_count
from widemargin.data.files import MissingDataError, files_not_found, resolve_root, search_folders
from widemargin.data.images import Row, decode_image, hub_rows, image_bytes
from widemargin.data.samples import Data

ImageNet: TypeAlias = Data[Dataset[tuple[Tensor, Tensor]]]

HUB = "ILSVRC/imagenet-1k"
_FOLDERS = ("imagenet", "ImageNet", "ILSVRC2012", "imagenet-1k")
_ENDINGS = (".jpeg", ".jpg", ".png", ".webp")


def load_imagenet(root: str | Path | None, *, size: int = 224) -> ImageNet:
    """Images [3, size, size] in [0, 1], cropped at the centre; `test` is ImageNet's validation set.

    From a folder `train/<class>/*.JPEG` and `val/<class>/*.JPEG` (any number of classes, in the order of the folders'
    names), else streamed from the hub. There are no checksums, since the release is not a fixed set of files.
    """
    check_count("size", size)
    place = resolve_root(root)
    for folder in search_folders(place, _FOLDERS) if place is not None else ():
        val = next((folder / name for name in ("val", "validation") if (folder / name).is_dir()), None)
        if val is not None and (folder / "train").is_dir():
            return _from_folder(folder / "train", val, size)
    return _from_hub(place, size)


@dataclass(frozen=True, eq=False)
class ImageFolder(Dataset[tuple[Tensor, Tensor]]):
    """The images of a folder with one subfolder per class."""

    folder: Path
    classes: tuple[str, ...]
    files: tuple[tuple[int, str], ...]
    size: int

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        label, name = self.files[i]
        path = self.folder / self.classes[label] / name
        return _to_tensor(path.read_bytes(), str(path), self.size), torch.tensor(label)

    def __repr__(self) -> str:
        return f"ImageFolder({len(self)} images of {len(self.classes)} classes in {self.folder})"


@dataclass(frozen=True, eq=False)
class ImageStream(IterableDataset[tuple[Tensor, Tensor]]):
    """Rows from the hub, which its own iterator distributes among the workers of a `DataLoader`."""

    rows: Iterable[Row]
    size: int
    source: str

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number, row in enumerate(self.rows):
            where = f"row {number} of {self.source}"
            yield _to_tensor(image_bytes(row, where), where, self.size), torch.tensor(row["label"])


def _from_folder(train: Path, val: Path, size: int) -> ImageNet:
    classes = {part: tuple(sorted(entry.name for entry in os.scandir(part) if entry.is_dir())) for part in (train, val)}
    for part, folders in classes.items():
        if not folders:
            raise FileNotFoundError(f"{part} has no folders, expected one folder of images per class")
    differing = sorted(set(classes[train]) ^ set(classes[val]))
    if differing:
        raise ValueError(f"{train} and {val} have different classes, for example {differing[0]}, expected the same")
    parts = [ImageFolder(part, folders, _list(part, folders), size) for part, folders in classes.items()]
    return Data("imagenet", parts[0], parts[1], classes[train], (0.0, 1.0))


def _list(part: Path, classes: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    files: list[tuple[int, str]] = []
    for label, name in enumerate(classes):
        images = sorted(e.name for e in os.scandir(part / name) if e.name.lower().endswith(_ENDINGS))
        if not images:
            raise FileNotFoundError(f"{part / name} has no images, expected some for every class")
        files += [(label, image) for image in images]
    return tuple(files)


def _from_hub(root: Path | None, size: int) -> ImageNet:
    try:
        splits = {split: hub_rows(HUB, split, streaming=True) for split in ("train", "validation")}
    except (ImportError, MissingDataError) as error:
        raise files_not_found("imagenet", root, "train/<class>/*.JPEG and val/<class>/*.JPEG", error) from error
    parts = [ImageStream(rows, size, f"the {split} split of {HUB}") for split, rows in splits.items()]
    return Data("imagenet", parts[0], parts[1], tuple(splits["train"].features["label"].names), (0.0, 1.0))


def _to_tensor(content: bytes, source: str, size: int) -> Float[Tensor, "3 size size"]:
    return torch.tensor(decode_image(content, 3, source, size=size), dtype=torch.float32).div_(255)
