"""Batches of any data: a name, tensors, samples, a `Dataset` or a `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from widemargin.checks import check_choice, check_count
from widemargin.data.registry import load
from widemargin.data.samples import Data, Samples


def batches(data: object, *, batch_size: int = 256, split: str = "test") -> Batches:
    """Batches (x, y) of `data`, in its order, never shuffled.

    `data` is a name (`"mnist-5k"`) or a `Data`, of which `split` selects a part, `Samples`, a pair (x, y) of tensors,
    a torch `Dataset`, or a `DataLoader`, which keeps its own batch size and order. Tensors are sliced, not copied.
    `len` of the result is the number of batches; `operator.length_hint` gives 0 where a stream has no length.
    """
    check_count("batch_size", batch_size)
    check_choice("split", split, ("train", "test"))
    if isinstance(data, str):
        data = load(data)
    if isinstance(data, Data):
        data = data.train if split == "train" else data.test
    if isinstance(data, DataLoader):
        return Batches(data)
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list):
        data = Samples(*_pair(data))
    if isinstance(data, Samples):
        return Batches(list(zip(data.x.split(batch_size), data.y.split(batch_size))), data)
    if isinstance(data, Dataset):
        return Batches(_loader(data, batch_size))
    raise TypeError(
        f"data is a {type(data).__name__}, expected the name of a data set, a Data, Samples, a pair (x, y) of tensors, "
        "a torch Dataset or a DataLoader"
    )


@dataclass(frozen=True, eq=False)
class Batches:
    """Pairs (x, y) of tensors, batch by batch, for any number of iterations; each batch is checked."""

    source: Iterable[object]
    samples: Samples | None = None
    """All samples, where they are in memory."""

    def __len__(self) -> int:
        """The number of batches; a `TypeError` where a stream has no length."""
        if not isinstance(self.source, Sized):
            raise TypeError(f"data is a {type(self.source).__name__} without a length, expected one with __len__")
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(self.source):
            name = f"batch {number} of data"
            x, y = _pair(batch, name)
            if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
                raise ValueError(f"{name} has x {list(x.shape)} and y {list(y.shape)}, expected equal lengths")
            yield x, y


def _pair(data: object, name: str = "data") -> tuple[Tensor, Tensor]:
    parts = data if isinstance(data, tuple | list) else ()
    if len(parts) == 2 and isinstance(parts[0], Tensor) and isinstance(parts[1], Tensor):
        return parts[0], parts[1]
    types = f" of {len(parts)} ({', '.join(type(part).__name__ for part in parts[:4])})" if parts else ""
    raise TypeError(f"{name} is a {type(data).__name__}{types}, expected a pair (x, y) of tensors")


def _loader(data: Dataset[object], batch_size: int) -> DataLoader[object]:
    if not isinstance(data, IterableDataset):
        if not isinstance(data, Sized):
            raise TypeError(f"data is a {type(data).__name__} without a length, expected a Dataset with __len__")
        if len(data) == 0:
            raise ValueError(f"data is an empty {type(data).__name__}, expected at least one sample")
    return DataLoader(data, batch_size=batch_size, shuffle=False)
