"""Samples and batches of every network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from widemargin.data import Data, Samples, read
from widemargin.training.batches import Split, order


class StackedBatch(NamedTuple):
    """A batch of every network: `x` `[networks, batch, ...]`, `y` and `index` `[networks, batch]`."""

    x: Tensor
    y: Tensor
    index: Tensor  # type: ignore[assignment]


class StackedData:
    """Data of some networks on the device; inputs and labels that networks share are stored once.

    `split` cuts every epoch into batches; without one each batch has all samples, in their order.
    """

    def __init__(self, data: Sequence[Samples], seeds: Sequence[int], split: Split | None) -> None:
        self.size, self.seeds = len(data[0]), list(seeds)
        self.ends = None if split is None else [0, *split.ends(self.size)]
        self.x, self._which_x = _shared([samples.x for samples in data])
        self.y, self._which_y = _shared([samples.y for samples in data])
        self._epoch: int | None = None
        self._order, self._all = torch.empty(0), self._whole()

    def batch(self, step: int) -> StackedBatch:
        """The batch of every network in this step: the same samples as in `fit` with that network's seed."""
        if self._all is not None:
            return self._all
        assert self.ends is not None
        epoch, number = divmod(step, len(self.ends) - 1)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = torch.stack([order(self.size, epoch, seed) for seed in self.seeds]).to(self.y.device)
        index = self._order[:, self.ends[number] : self.ends[number + 1]]
        return StackedBatch(_part(self.x, self._which_x, index), _part(self.y, self._which_y, index), index)

    def keep(self, index: Tensor) -> None:
        """Keep the networks at `index` alone."""
        self.seeds = [self.seeds[k] for k in index.tolist()]
        self._which_x, self._which_y = self._which_x[index], self._which_y[index]
        self._epoch, self._all = None, self._whole()

    def _whole(self) -> StackedBatch | None:
        """The batch of all samples, where every batch is that one."""
        if self.ends is not None:
            return None
        x, y = (
            values.expand(len(which), *values.shape[1:]) if len(values) == 1 else values[which]
            for values, which in ((self.x, self._which_x), (self.y, self._which_y))
        )
        return StackedBatch(x, y, torch.arange(self.size, device=y.device).expand(len(self.seeds), -1))


def samples_of(data: object, count: int, device: torch.device, dtype: torch.dtype) -> list[Samples]:
    """The samples of every network on the device: `data` for all, or one of a sequence each.

    Floating-point inputs are cast to the dtype.
    """
    whole = (Dataset, Data, DataLoader, str, tuple, list)  # what may be the data of one network
    is_pair = isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[0], whole)
    if isinstance(data, Sequence) and not isinstance(data, str) and not is_pair:
        if len(data) != count:
            raise ValueError(f"data has {len(data)} data sets, but there are {count} networks, expected one for each")
        given = list(data)
    else:
        given = [data] * count
    seen: dict[int, Samples] = {}
    tensors: dict[int, Tensor] = {}
    found = []
    for number, one in enumerate(given):
        if id(one) not in seen:
            samples = full_batch(one)
            for tensor in (samples.x, samples.y):
                if id(tensor) not in tensors:  # shared inputs stay shared
                    is_cast = tensor is samples.x and tensor.is_floating_point()
                    tensors[id(tensor)] = tensor.to(device, dtype if is_cast else None)
            seen[id(one)] = Samples(tensors[id(samples.x)], tensors[id(samples.y)])
        found.append(seen[id(one)])
        if found[-1].x.shape != found[0].x.shape:
            raise ValueError(
                f"data has inputs of shape {list(found[-1].x.shape)} at index {number} and {list(found[0].x.shape)} at "
                "index 0, expected equally many samples of one form for all networks"
            )
    return found


def full_batch(data: object) -> Samples:
    """All training samples of `data`, anything that `data.batches` takes."""
    return data if isinstance(data, Samples) else read(data, split="train")


def _part(values: Tensor, which: Tensor, index: Tensor) -> Tensor:
    if len(values) == 1:  # whole rows are copied: faster than an index of two dimensions
        return values[0].index_select(0, index.flatten()).unflatten(0, index.shape)
    return values[which[:, None], index]


def _shared(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The different tensors among `tensors`, stacked, and the index of each in them."""
    different = {id(tensor): tensor for tensor in tensors}
    positions = {key: number for number, key in enumerate(different)}
    which = torch.tensor([positions[id(tensor)] for tensor in tensors], device=tensors[0].device)
    return tensors[0][None] if len(different) == 1 else torch.stack(list(different.values())), which
