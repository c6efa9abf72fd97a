"""Positions in the data set of the samples that a `DataLoader` gives, whatever its sampler draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler


@dataclass
class Positions:
    """The positions of one batch after the other."""

    drawn: deque[list[int]] | None = None
    """Positions of the batches drawn by a sampler; None if they are counted instead, or unknown."""
    count: int | None = 0
    """Samples so far; None once positions are unknown."""

    @classmethod
    def counted(cls) -> Positions:
        """Positions of data that are read in their order."""
        return cls()

    @classmethod
    def unknown(cls) -> Positions:
        """Unknown positions, of a stream or of a sampler that does not give any."""
        return cls(count=None)

    def next(self, samples: int) -> Tensor | None:
        """The positions of the next batch, which has so many samples; None where they are not known."""
        if self.count is None:
            return None
        if self.drawn is None:
            index = torch.arange(self.count, self.count + samples)
        else:
            index = torch.tensor(self.drawn.popleft(), dtype=torch.int64)
        # If a collate function leaves samples out, all later positions are unknown.
        self.count = self.count + samples if len(index) == samples else None
        return index if len(index) == samples else None


@dataclass
class _Recorder(Iterable[list[int]]):
    """The batches of positions of a sampler, each kept until its samples have arrived."""

    sampler: Any
    drawn: deque[list[int]] = field(default_factory=deque)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.sampler:
            positions = [int(position) for position in batch]
            self.drawn.append(positions)
            yield positions

    def __len__(self) -> int:
        return len(self.sampler)


def with_positions(loader: DataLoader[Any]) -> tuple[Iterable[object], Positions]:
    """`loader`, or one that gives the same batches, and the positions of its samples while it is iterated."""
    sampler = loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset) or sampler is None or not getattr(loader, "in_order", True):
        return loader, Positions.unknown()
    if type(sampler) is BatchSampler and type(sampler.sampler) is SequentialSampler:
        return loader, Positions(deque(map(list, sampler)))
    if type(loader) is not DataLoader:
        return loader, Positions.unknown()  # a subclass may change the sampling
    recorder = _Recorder(sampler)
    workers = {}
    if loader.num_workers:
        workers = {"prefetch_factor": loader.prefetch_factor, "multiprocessing_context": loader.multiprocessing_context}
    same: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=recorder,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **workers,
    )
    return same, Positions(recorder.drawn)
