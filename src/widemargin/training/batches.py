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
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from widemargin._autograd.preserve_rng import takes_turns
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

    knows_positions: bool = True
    """Whether batches have the positions of their samples in the training set."""

    @abc.abstractmethod
    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch `number`, from batch `start` on."""

    @abc.abstractmethod
    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        """At most `count` samples, always the same, to measure on, and their positions; None from a stream."""


def source(data: object, *, batch_size: int, seed: int, replica: Replica) -> Source:
    """The source that fits `data`, anything that `data.batches` takes; of a `Data` or a name the training set."""
    found = batches(data, batch_size=batch_size, split="train")
    if found.samples is not None:
        return InMemory(found.samples, batch_size, seed, replica)
    loader = found.source
    assert isinstance(loader, DataLoader)
    if isinstance(data, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return _Loader(found, seed, replica)
    return _Indexed(found, batch_size, seed, replica)


class InMemory(Source):
    """Tensors, on the device from the beginning."""

    def __init__(self, samples: Samples, batch_size: int, seed: int, replica: Replica) -> None:
        _check_shares(len(samples), batch_size, replica.processes)
        self.x, self.y = replica.move(samples.x, samples.y)
        self.batch_size, self.seed, self.replica = batch_size, seed, replica
        self.count, self.steps = len(self.y), -(-len(self.y) // batch_size)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch `number`, from batch `start` on."""
        for joint in order(len(self.y), number, self.seed).to(self.replica.device).split(self.batch_size)[start:]:
            index = self.replica.share(joint)
            yield Batch(x=self.x[index], y=self.y[index], index=index, joint=len(joint))

    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        """At most `count` samples, always the same, and their positions."""
        index = _some(len(self.y), count, self.seed).to(self.replica.device)
        return Samples(self.x[index], self.y[index]), index


class _Indexed(Source):
    count: int
    dataset: AnyDataset

    def __init__(self, found: Batches, batch_size: int, seed: int, replica: Replica) -> None:
        assert isinstance(found.source, DataLoader)
        dataset: AnyDataset = found.source.dataset
        assert isinstance(dataset, Sized)
        self.opened = found.opened
        _check_shares(len(dataset), batch_size, replica.processes)
        self.dataset, self.count = dataset, len(dataset)
        self.batch_size, self.seed, self.replica = batch_size, seed, replica
        self.steps = -(-self.count // batch_size)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        joints = order(self.count, number, self.seed).split(self.batch_size)
        for step, joint in enumerate(joints[start:], start):
            index = self.replica.share(joint)
            x, y = self._read(index.tolist(), number, step)
            x, y = self.replica.move(x, y)
            yield Batch(x=x, y=y, index=index.to(self.replica.device), joint=len(joint))

    @takes_turns
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
        is_stream = isinstance(loader.dataset, IterableDataset)
        self.dataset = None if is_stream else loader.dataset
        drawn = loader.dataset if is_stream else loader.sampler
        self.count = len(drawn) if isinstance(drawn, Sized) else None
        # A stream, or a sampler without a length, does not know; a length of 0 is no news either.
        self.steps = None if is_stream else operator.length_hint(loader) or None

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

    @takes_turns
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

    @takes_turns
    def _next(self, passed: Iterator[Any], number: int, step: int) -> Any:
        seed_all(self.replica.device, self.seed, "data", number, step)
        return next(passed, None)

    def some(self, count: int) -> tuple[Measurable, Tensor | None] | None:
        if self.dataset is None:
            return None
        part = Subset(self.dataset, _some(len(self.dataset), count, self.seed).tolist())  # type: ignore[arg-type]
        size = self.loader.batch_size or 256
        return DataLoader(part, batch_size=size, collate_fn=self.loader.collate_fn), None


def order(count: int, epoch: int, seed: int) -> Tensor:
    """The order of `count` samples in an epoch: a permutation that depends on the seed and the epoch alone."""
    return torch.randperm(count, generator=generator(f"order of epoch {epoch}", seed))


def _some(total: int, count: int, seed: int) -> Tensor:
    return torch.randperm(total, generator=generator("measured while training", seed))[:count].sort().values


def _check_shares(count: int, batch_size: int, processes: int) -> None:
    last = count % batch_size or min(batch_size, count)
    if min(last, batch_size) < processes:
        raise ValueError(
            f"batch_size is {batch_size}, which leaves {last} of the {count} samples in the last batch, too few for "
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
