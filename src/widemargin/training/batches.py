"""Batches of a training, in an order that depends on the seed and the epoch alone.

Tensors are indexed on the device; a `Dataset` is read sample by sample in the same order; a `DataLoader` keeps its own
batches and order. Each of several processes takes its share of every batch.
"""

from __future__ import annotations

import abc
import hashlib
import itertools
import operator
import random
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
    default_convert,
)

from widemargin._autograd.preserve_rng import preserve_rng, with_rng_lock
from widemargin.data import Batches, Samples, batches
from widemargin.data.seeds import generator
from widemargin.modules import ModelInputs, NamedInputs

AnyDataset: TypeAlias = Dataset[Any]
Measurable: TypeAlias = AnyDataset | DataLoader[Any]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One process's share of a batch: `index` are its positions in the training set, `joint` the size of the whole."""

    x: ModelInputs
    y: Tensor
    index: Tensor | None
    joint: int


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One process of a training: its device, dtype of floating-point inputs (None: as they are), and share."""

    device: torch.device
    dtype: torch.dtype | None
    rank: int = 0
    processes: int = 1

    def move(self, x: ModelInputs, y: Tensor) -> tuple[ModelInputs, Tensor]:
        """`x` and `y` on the device."""
        dtype = self.dtype if isinstance(x, NamedInputs) or x.is_floating_point() else None
        return x.to(self.device, dtype), y.to(self.device)

    def share(self, values: Tensor) -> Tensor:
        """This process's part of the rows of a batch."""
        return values.tensor_split(self.processes)[self.rank] if self.processes > 1 else values

    def share_inputs(self, x: ModelInputs) -> ModelInputs:
        """This process's part of the inputs of a batch."""
        return x.map(self.share) if isinstance(x, NamedInputs) else self.share(x)


class Source(abc.ABC):
    """Batches of every epoch."""

    steps: int | None
    """Batches in an epoch; None for a stream."""

    count: int | None
    """Training samples; None for a stream."""

    dataset: AnyDataset | None = None
    """The data set whose samples are read one by one; None of tensors and streams."""

    positions: Sequence[Any] | None = None
    """The positions in `dataset` that are read, each once; None: all of them."""

    collate: Callable[[list[Any]], Any] | None = None
    """The function of a `DataLoader` that makes a batch of samples, if that is the user's own."""

    knows_positions: bool = True
    """Whether batches have the positions of their samples in the training set."""

    @abc.abstractmethod
    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch `number`, from batch `start` on."""

    @abc.abstractmethod
    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        """At most `count` samples, always the same, to measure on, and their positions; None from a stream."""


def source(data: object, batch_size: int, seed: int, replica: Replica, fewest: int = 1) -> Source:
    """The source that fits `data`, anything that `data.batches` takes; of a `Data` or a name the training set.

    A last batch of fewer than `fewest` samples is joined to the one before it; a `DataLoader` keeps its batches.
    """
    found = batches(data, batch_size=batch_size, split="train")
    if found.samples is not None:
        return InMemory(found.samples, Split(batch_size, fewest), seed, replica)
    loader = found.source
    assert isinstance(loader, DataLoader)
    if isinstance(data, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return _Loader(found, seed, replica)
    return _Indexed(found, Split(batch_size, fewest), seed, replica)


@dataclass(frozen=True)
class Split:
    """The batches of an epoch: `size` samples each; a last one of fewer than `fewest` is joined to the one before."""

    size: int
    fewest: int = 1

    def ends(self, count: int) -> list[int]:
        """The end of every batch of `count` samples."""
        whole, rest = divmod(count, self.size)
        ends = [self.size * (k + 1) for k in range(whole)]
        if whole and rest < self.fewest:
            ends[-1] = count
        elif rest:
            ends.append(count)
        return ends

    def of(self, order: Tensor) -> tuple[Tensor, ...]:
        """The batches of samples in this order."""
        return order.tensor_split(self.ends(len(order))[:-1])


class InMemory(Source):
    """Tensors, on the device from the beginning."""

    def __init__(self, samples: Samples, split: Split, seed: int, replica: Replica) -> None:
        _check_shares(len(samples), split, replica.processes)
        self.x, self.y = replica.move(samples.x, samples.y)
        self.split, self.seed, self.replica = split, seed, replica
        self.count, self.steps = len(self.y), len(split.ends(len(self.y)))

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch `number`, from batch `start` on."""
        for joint in self.split.of(order(len(self.y), number, self.seed).to(self.replica.device))[start:]:
            index = self.replica.share(joint)
            yield Batch(x=self.x[index], y=self.y[index], index=index, joint=len(joint))

    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        """At most `count` samples, always the same, and their positions."""
        index = _some(len(self.y), count, self.seed).to(self.replica.device)
        return Samples(self.x[index], self.y[index]), index


class _Indexed(Source):
    count: int
    dataset: AnyDataset

    def __init__(self, found: Batches, split: Split, seed: int, replica: Replica) -> None:
        assert isinstance(found.source, DataLoader)
        dataset: AnyDataset = found.source.dataset
        assert isinstance(dataset, Sized)
        self.opened = found.opened
        _check_shares(len(dataset), split, replica.processes)
        self.dataset, self.count = dataset, len(dataset)
        self.split, self.seed, self.replica = split, seed, replica
        self.steps = len(split.ends(self.count))

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        joints = self.split.of(order(self.count, number, self.seed))
        for step, joint in enumerate(joints[start:], start):
            index = self.replica.share(joint)
            x, y = self._read(index.tolist(), number, step)
            x, y = self.replica.move(x, y)
            yield Batch(x=x, y=y, index=index.to(self.replica.device), joint=len(joint))

    @with_rng_lock
    def _read(self, positions: list[int], number: int, step: int) -> tuple[Any, Tensor]:
        seed_all(self.replica.device, self.seed, "data", number, step, self.replica.rank)  # of random transforms
        ((x, y),) = Batches([default_collate(self._rows(positions))], self.opened)
        return x, y

    def _rows(self, positions: list[int]) -> list[Any]:
        together = getattr(self.dataset, "__getitems__", None)  # as a DataLoader asks for them
        return [self.dataset[i] for i in positions] if together is None else together(positions)

    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        index = _some(self.count, count, self.seed)
        return Subset(self.dataset, index.tolist()), index.to(self.replica.device)


class _Loader(Source):
    knows_positions = False

    def __init__(self, found: Batches, seed: int, replica: Replica) -> None:
        loader = found.source
        assert isinstance(loader, DataLoader)
        self.found, self.loader, self.seed, self.replica = found, loader, seed, replica
        self.steps = operator.length_hint(loader) or None
        if isinstance(loader.dataset, IterableDataset):
            self.count = len(loader.dataset) if isinstance(loader.dataset, Sized) else None
            return
        self.dataset, self.positions = loader.dataset, _drawn(loader)
        self.count = None if loader.batch_sampler is None else len(self.positions)  # items of such a loader are batches
        is_own = loader.collate_fn not in (default_collate, default_convert)
        self.collate = loader.collate_fn if is_own and loader.batch_sampler is not None else None

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        # Every process reads every batch and keeps its share: the order is the loader's, so it can't be split before.
        passed, pair = self._begin(number, start)
        for step in itertools.count(start):
            if step > start:
                pair = self._next(passed, number, step)
            if pair is None:
                return
            if len(pair[1]) < self.replica.processes:
                raise ValueError(
                    f"batch {step} of data has {len(pair[1])} samples for {self.replica.processes} processes"
                )
            x, y = self.replica.move(self.replica.share_inputs(pair[0]), self.replica.share(pair[1]))
            yield Batch(x=x, y=y, index=None, joint=len(pair[1]))

    @with_rng_lock
    def _begin(self, number: int, start: int) -> tuple[Iterator[Any], Any]:
        """The iteration of an epoch, and its batch `start`."""
        seed_all(self.replica.device, self.seed, "data", number)
        for drawn in {self.loader.generator, getattr(self.loader.sampler, "generator", None)} - {None}:
            drawn.manual_seed(torch.initial_seed())
        if hasattr(self.loader.sampler, "set_epoch"):
            self.loader.sampler.set_epoch(number)
        passed = iter(self.found)
        for _ in itertools.islice(passed, start):
            pass
        # The first batch of an epoch draws the order as well, from the seed above.
        return passed, self._next(passed, number, start) if start else next(passed, None)

    @with_rng_lock
    def _next(self, passed: Iterator[Any], number: int, step: int) -> Any:
        seed_all(self.replica.device, self.seed, "data", number, step)
        return next(passed, None)

    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        if self.dataset is None or not self.positions:
            return None
        collate = self.loader.collate_fn
        if self.loader.batch_sampler is None:
            ((_, y),) = Batches([collate(self.dataset[self.positions[0]])], self.found.opened)
            count = -(-count // max(1, len(y)))
        part = Subset(self.dataset, [self.positions[i] for i in _some(len(self.positions), count, self.seed).tolist()])
        size = None if self.loader.batch_sampler is None else self.loader.batch_size or 256
        return DataLoader(part, batch_size=size, collate_fn=collate), None


def _drawn(loader: DataLoader[Any]) -> Sequence[Any]:
    """The positions in its data set that `loader` draws, each once; those of one epoch of a user's sampler."""
    assert isinstance(loader.dataset, Sized)
    is_all = isinstance(loader.sampler, SequentialSampler | RandomSampler)
    if is_all and (loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler):
        return range(len(loader.dataset))
    with preserve_rng(torch.device("cpu")):
        seed_all(torch.device("cpu"), "positions")
        batched = [loader.sampler] if loader.batch_sampler is None else loader.batch_sampler
        drawn = itertools.islice(itertools.chain.from_iterable(batched), 4 * len(loader.dataset))  # it may not end
        found = list(dict.fromkeys(int(k) if isinstance(k, Tensor) else k for k in drawn))
    return sorted(found) if all(isinstance(k, int) for k in found) else found


def order(count: int, epoch: int, seed: int) -> Tensor:
    """The order of `count` samples in an epoch: a permutation that depends on the seed and the epoch alone."""
    return torch.randperm(count, generator=generator(f"order of epoch {epoch}", seed))


def _some(total: int, count: int, seed: int) -> Tensor:
    return torch.randperm(total, generator=generator("measured while training", seed))[:count].sort().values


def _check_shares(count: int, split: Split, processes: int) -> None:
    ends = [0, *split.ends(count)]
    last = ends[-1] - ends[-2] if count else 0
    if min(last, split.size) < processes:
        raise ValueError(
            f"batch_size is {split.size}, which leaves {last} of the {count} samples in the last batch, too few for "
            f"{processes} processes: choose another batch_size"
        )


def seed_all(device: torch.device, *key: object) -> None:
    """Seed torch on the CPU and on `device`, numpy's and Python's global generators with SHA-256 of `key`.

    Every step of a training does so from (seed, step, process). A resumed training then draws the same numbers as an
    uninterrupted one without a stored generator state, on any device.
    """
    number = int.from_bytes(hashlib.sha256(repr(("widemargin.training", *key)).encode()).digest()[:8], "big") >> 1
    torch.default_generator.manual_seed(number)  # torch.manual_seed would format a stack trace for CUDA every time
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(number)
    elif device.type == "mps":
        torch.mps.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002  (users' transforms draw from the global generator)
