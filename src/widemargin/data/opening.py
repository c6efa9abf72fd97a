"""Any data as `Samples`, a torch `Dataset` or a `DataLoader`, with the names of its classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from widemargin.checks import check_choice, check_dense, check_several
from widemargin.data.hub_rows import hub_dataset
from widemargin.data.reading import read_pair
from widemargin.data.registry import load
from widemargin.data.samples import Data, Samples

LABELS = ("labels", "label", "y")
"""Names of the labels in a batch that is a mapping, and in a Hugging Face data set."""


@dataclass(frozen=True, eq=False)
class Opened:
    """Data that can be read sample by sample, and the names of their classes."""

    source: Samples | Dataset[Any] | DataLoader[Any]
    classes: tuple[str, ...] = ()
    are_complete: bool = True
    """Whether `classes` are all classes; False for those of samples, which may have been collected from labels."""

    def check_classes(self, scores: Tensor) -> None:
        """Raise if the number of names collected from the labels is not the number of scores.

        Names are sorted to get their indices, so a missing one would shift those after it.
        """
        count = scores.shape[1] if scores.ndim == 2 else 1
        has_signs = isinstance(self.source, Samples) and self.source.y.is_floating_point()  # the labels −1 and 1
        if self.are_complete or len(self.classes) == (2 if count == 1 and has_signs else count):
            return
        shown = ", ".join(map(repr, self.classes[:8])) + (", …" if len(self.classes) > 8 else "")
        cure = "name all of them in order with wm.data.read(data, classes=[…])"
        cure = "it takes labels -1.0 and 1.0" if count == 1 else cure
        raise ValueError(f"y has {len(self.classes)} classes ({shown}), but the network has {count} scores: {cure}")


def open_data(data: object, *, split: str = "test", classes: Sequence[str] | None = None) -> Opened:
    """`data` of any kind that `batches` takes; of a `Data` or a name the part `split`."""
    check_choice("split", split, ("train", "test"))
    if classes is not None:
        check_several("classes", classes, "('cat', 'dog')")
    names: tuple[str, ...] = ()
    if isinstance(data, str):
        data = load(data)
    if isinstance(data, Data):
        names, data = data.classes, data.train if split == "train" else data.test
    if isinstance(data, DataLoader):
        return Opened(data, tuple(classes or names) or _classes_of(data.dataset))
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list):
        data = _pair(data, classes)
    if isinstance(data, Samples):
        check_dense(data.x, "x")
        return Opened(data, tuple(classes or data.classes or names), are_complete=not data.classes)
    if (rows := hub_dataset(data, LABELS, classes)) is not None:
        return Opened(*rows)
    if isinstance(data, Dataset):
        return Opened(data, tuple(classes or names) or _classes_of(data))
    raise TypeError(
        f"data is a {type(data).__name__}, expected the name of a data set, a Data, Samples, a pair (x, y) of tensors, "
        "arrays or frames, a torch Dataset, a datasets.Dataset or a DataLoader"
    )


def _pair(data: Sequence[object], classes: Sequence[str] | None) -> Samples:
    """The samples of a pair (x, y)."""
    if len(data) != 2:
        types = ", ".join(type(part).__name__ for part in data[:4])
        raise TypeError(f"data is a {type(data).__name__} of {len(data)} ({types}), expected a pair (x, y)")
    x, y = data
    if isinstance(x, Mapping):
        raise TypeError("data is a pair of a mapping and labels, expected batches of mappings: pass a DataLoader")
    return read_pair(x, y, classes=classes)


def _classes_of(dataset: object) -> tuple[str, ...]:
    """The names that a data set of torchvision's kind has as `classes`."""
    found = getattr(dataset, "classes", None)
    is_names = isinstance(found, tuple | list) and all(isinstance(name, str) for name in found)
    return tuple(found) if is_names and found else ()
