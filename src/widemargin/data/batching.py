"""One way in for everything that takes data: a name, tensors, samples, a `Dataset` or a `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from widemargin.data.by_name import load
from widemargin.data.samples import Data, Samples


def batches(data: object, *, batch_size: int = 256, split: str = "test") -> Batches:
    """Batches (x, y) of `data`, in its order, never shuffled.

    `data` is a name (`"mnist-5k"`), a `Data` (of both, the part named by `split`), `Samples`, a pair (x, y) of
    tensors, a torch `Dataset`, or a `DataLoader`, which is used as it is: with its own batch size and its own order.
    Tensors are sliced, not copied. `len` of the result is the number of batches; `operator.length_hint` gives 0
    where a stream does not know it.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}, expected an integer >= 1")
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
    if isinstance(data, str):
        data = load(data)
    if isinstance(data, Data):
        data = data.train if split == "train" else data.test
    if isinstance(data, DataLoader):
        return Batches(data)
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list):
        data = _pair(data)
    if isinstance(data, Samples):
        return Batches(_Slices(data, batch_size))
    if isinstance(data, Dataset):
        return Batches(_loader(data, batch_size))
    raise TypeError(
        f"data is a {type(data).__name__}, expected the name of a data set, a Data, Samples, a pair (x, y) of tensors, "
        "a torch Dataset or a DataLoader"
    )


@dataclass(frozen=True, eq=False)
class Batches:
    """Pairs (x, y) of tensors, batch by batch, as often as it is iterated; each batch is looked at as it passes."""

    source: Iterable[Any]

    def __len__(self) -> int:
        """The number of batches; a `TypeError` where a stream does not know it."""
        if not isinstance(self.source, Sized):
            raise TypeError(f"a {type(self.source).__name__} does not know its number of batches")
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(self.source):
            yield _checked(batch, number)


@dataclass(frozen=True, eq=False)
class _Slices:
    samples: Samples
    batch_size: int

    def __len__(self) -> int:
        return -(-len(self.samples) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self.samples), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield self.samples.x[part], self.samples.y[part]


def _pair(data: tuple[Any, ...] | list[Any]) -> Samples:
    if len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        kinds = ", ".join(type(part).__name__ for part in data[:4])
        raise TypeError(f"data is a {type(data).__name__} of {len(data)} ({kinds}), expected a pair (x, y) of tensors")
    return Samples(data[0], data[1])


def _loader(data: Dataset[Any], batch_size: int) -> DataLoader[Any]:
    if not isinstance(data, IterableDataset):
        if not isinstance(data, Sized):
            raise TypeError(f"data is a {type(data).__name__} without a length, expected a Dataset with __len__")
        if len(data) == 0:
            raise ValueError(f"data is an empty {type(data).__name__}, expected at least one sample")
    return DataLoader(data, batch_size=batch_size, shuffle=False)


def _checked(batch: object, number: int) -> tuple[Tensor, Tensor]:
    # A dict of two entries would unpack into its keys, and a batch of three would fail far from here.
    if not isinstance(batch, tuple | list):
        raise TypeError(f"batch {number} of data is a {type(batch).__name__}, expected a pair (x, y) of tensors")
    if len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
        kinds = ", ".join(type(part).__name__ for part in batch[:4])
        raise TypeError(f"batch {number} of data holds ({kinds}), expected a pair (x, y) of tensors")
    x, y = batch
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise ValueError(f"batch {number} of data has x {list(x.shape)} and y {list(y.shape)}, expected equal lengths")
    return x, y
