"""Batches of any data: a name, arrays, frames, tensors, samples, a `Dataset`, a `DataLoader` or a Hugging Face set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from widemargin.checks import check_count
from widemargin.data.opening import LABELS, Opened, open_data
from widemargin.data.positions import Positions, with_positions
from widemargin.data.reading import read_inputs, read_labels
from widemargin.data.samples import Samples, check_not_bool
from widemargin.modules import ModelInputs, NamedInputs


def batches(
    data: object, *, batch_size: int = 256, split: str = "test", classes: Sequence[str] | None = None
) -> Batches:
    """Batches (x, y) of `data`, in its order, never shuffled.

    `data` is a name (`"mnist-5k"`) or a `Data`, of which `split` selects a part, `Samples`, a pair (x, y) of tensors,
    NumPy arrays or pandas frames and series, a torch `Dataset`, a `datasets.Dataset`, or a `DataLoader`, which keeps
    its own batch size and order. Tensors are sliced, not copied. `len` of the result is the number of batches;
    `operator.length_hint` gives 0 where a stream has no length.

    Labels that are names become indices, in the order of `classes`, else sorted. A batch that is a mapping gives its
    `labels` (or `label`, `y`) as y and its other tensors as `NamedInputs`, which a network takes by name.
    """
    check_count("batch_size", batch_size)
    opened = open_data(data, split=split, classes=classes)
    source = opened.source
    if isinstance(source, Samples):
        return Batches(list(zip(source.x.split(batch_size), source.y.split(batch_size))), opened)
    return Batches(source if isinstance(source, DataLoader) else _loader(source, batch_size), opened)


def read(data: object, *, split: str = "train", classes: Sequence[str] | None = None) -> Samples:
    """All samples of `data` in memory, as tensors in its order; anything that `batches` takes, with one input.

    samples = wm.data.read((frame, series))  # samples.x, samples.y, samples.classes
    """
    found = batches(data, batch_size=1024, split=split, classes=classes)
    if found.samples is not None:
        return replace(found.samples, classes=found.classes)
    parts = list(found.indexed())
    if not parts:
        raise ValueError("data has no samples, expected at least one batch")
    xs = [x for x, _, _ in parts if isinstance(x, Tensor) or len(x.keys()) == 1]
    if len(xs) < len(parts):
        raise TypeError("data has several inputs by name, such as tokens and their mask, expected one tensor of inputs")
    x = torch.cat([x if isinstance(x, Tensor) else x.first for x in xs])
    y = torch.cat([y for _, y, _ in parts])
    known = [at for _, _, at in parts if at is not None]
    if len(known) < len(parts):
        return Samples(x, y, classes=found.classes)
    index = torch.cat(known)
    order = index.argsort(stable=True)
    return Samples(x[order], y[order], index[order], found.classes)


@dataclass(frozen=True, eq=False)
class Batches:
    """Pairs (x, y) of tensors, batch by batch, for any number of iterations; each batch is checked."""

    source: Iterable[object]
    opened: Opened | None = None

    @property
    def samples(self) -> Samples | None:
        """All samples, where they are in memory."""
        return self.opened.source if self.opened and isinstance(self.opened.source, Samples) else None

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where they are known."""
        return self.opened.classes if self.opened else ()

    def check_classes(self, scores: Tensor) -> None:
        """Raise where the names of the classes do not fit the scores, see `Opened.check_classes`."""
        if self.opened is not None:
            self.opened.check_classes(scores)

    def __len__(self) -> int:
        """The number of batches; a `TypeError` where a stream has no length."""
        if not isinstance(self.source, Sized):
            raise TypeError(f"data is a {type(self.source).__name__} without a length, expected one with __len__")
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[ModelInputs, Tensor]]:
        for x, y, _ in self._checked(self.source, Positions.unknown()):
            yield x, y

    def indexed(self) -> Iterator[tuple[ModelInputs, Tensor, Tensor | None]]:
        """Triples (x, y, index) with the positions of the samples in the data set, None where they are not known.

        Those of a `DataLoader` are the ones that its sampler draws; those of a stream are unknown.
        """
        if not isinstance(self.source, DataLoader):
            return self._checked(self.source, Positions.counted())
        return self._checked(*with_positions(self.source))

    def _checked(
        self, source: Iterable[object], positions: Positions
    ) -> Iterator[tuple[ModelInputs, Tensor, Tensor | None]]:
        for number, batch in enumerate(source):
            name = f"batch {number} of data"
            x, y = _pair(batch, name, self.classes)
            check_not_bool(f"y of {name}", y)
            if (isinstance(x, Tensor) and x.ndim == 0) or y.ndim == 0 or len(x) != len(y):
                shapes = list(x.shape) if isinstance(x, Tensor) else repr(x)
                raise ValueError(f"{name} has x {shapes} and y {list(y.shape)}, expected equal lengths")
            yield x, y, positions.next(len(y))


def _pair(batch: object, name: str, classes: Sequence[str]) -> tuple[ModelInputs, Tensor]:
    """x and y of a batch: a pair, or a mapping with labels."""
    if isinstance(batch, Mapping):
        return _named(batch, name, classes)
    parts = batch if isinstance(batch, tuple | list) else ()
    if len(parts) == 2:
        x, y = parts
        if isinstance(x, Mapping):
            return _tensors(x, name), _labels(y, classes, name)
        if isinstance(x, Tensor) or hasattr(x, "__array__"):
            return read_inputs(x, f"x of {name}"), _labels(y, classes, name)
    types = f" of {len(parts)} ({', '.join(type(part).__name__ for part in parts[:4])})" if parts else ""
    raise TypeError(
        f"{name} is a {type(batch).__name__}{types}, expected a pair (x, y) of tensors, or a mapping with labels"
    )


def _named(batch: Mapping[str, object], name: str, classes: Sequence[str]) -> tuple[ModelInputs, Tensor]:
    keys = [key for key in LABELS if key in batch]
    if not keys:
        raise TypeError(f"{name} has the keys {', '.join(map(str, batch))}, expected 'labels' or 'label' among them")
    inputs = {key: value for key, value in batch.items() if key not in LABELS}
    return _tensors(inputs, name), _labels(batch[keys[0]], classes, name)


def _tensors(batch: Mapping[str, object], name: str) -> ModelInputs:
    """The tensors of a mapping; other values, such as texts, are left out."""
    found = {key: value for key, value in batch.items() if isinstance(value, Tensor)}
    if not found:
        types = ", ".join(f"{key} ({type(value).__name__})" for key, value in batch.items())
        raise TypeError(f"{name} has no tensor of inputs among {types or 'its keys'}, expected at least one")
    return cast("ModelInputs", NamedInputs(found))


def _labels(y: object, classes: Sequence[str], name: str) -> Tensor:
    """The labels of a batch; names need all classes, which one batch does not have."""
    if isinstance(y, Tensor):
        return y
    labels, found = read_labels(y, classes=classes or None, name=f"y of {name}")
    if found and not classes:
        raise TypeError(
            f"{name} has names as labels ({found[0]!r}), whose order a batch does not tell: name all classes with "
            "wm.data.read(data, classes=…), or give class indices"
        )
    return labels


def _loader(data: Dataset[object], batch_size: int) -> DataLoader[object]:
    if not isinstance(data, IterableDataset):
        if not isinstance(data, Sized):
            raise TypeError(f"data is a {type(data).__name__} without a length, expected a Dataset with __len__")
        if len(data) == 0:
            raise ValueError(f"data is an empty {type(data).__name__}, expected at least one sample")
    return DataLoader(data, batch_size=batch_size, shuffle=False)
