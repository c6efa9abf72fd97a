"""Positions of samples: an item of the data set is its own position, so that every batch tells the truth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from widemargin.data import batches


class Numbered(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.tensor([float(i)]), i


class Streamed(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return (DATA[i] for i in range(len(DATA)))


class Other(DataLoader[Any]):
    """A loader of another class, which may draw what it likes."""


def leave_out_odd(rows: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    even = [i for _, i in rows if i % 2 == 0]
    return torch.tensor(even)[:, None].float(), torch.tensor(even)


DATA = Numbered()
KNOWN: dict[str, Any] = {
    "data set": DATA,
    "in order": DataLoader(DATA, 6),
    "shuffled": DataLoader(DATA, 6, shuffle=True),
    "drop last": DataLoader(DATA, 6, shuffle=True, drop_last=True),
    "part": DataLoader(DATA, 6, sampler=SubsetRandomSampler(range(5, 15))),
    "again": DataLoader(DATA, 6, sampler=WeightedRandomSampler([1.0] * 20, 30)),
    "own batches": DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 3, drop_last=False)),
    "workers": DataLoader(DATA, 6, shuffle=True, num_workers=1, multiprocessing_context="fork"),
    "another class in order": Other(DATA, 6),
}
UNKNOWN: dict[str, Any] = {
    "stream": Streamed(),
    "loader of a stream": DataLoader(Streamed(), 6),
    "another class": Other(DATA, 6, shuffle=True),
    "no batches": DataLoader(DATA, batch_size=None, collate_fn=lambda row: (row[0][None], torch.tensor([row[1]]))),
    "left out": DataLoader(DATA, 6, shuffle=True, collate_fn=leave_out_odd),
}


@pytest.mark.parametrize("data", KNOWN.values(), ids=KNOWN.keys())
def test_what_a_loader_draws_is_known(data: object) -> None:
    found = batches(data, batch_size=6)
    for _ in range(2):  # every pass draws anew
        seen = 0
        for x, y, index in found.indexed():
            assert index is not None
            assert index.tolist() == y.tolist() == x[:, 0].tolist()
            seen += len(y)
        assert seen >= 10


@pytest.mark.parametrize("data", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_known_is_not_said(data: object) -> None:
    assert [index for *_, index in batches(data, batch_size=6).indexed()][-1] is None


def test_positions_in_a_subset_are_those_of_the_subset() -> None:
    (_, y, index), *_ = batches(Subset(DATA, [7, 3, 5])).indexed()
    assert y.tolist() == [7, 3, 5]
    assert index is not None
    assert index.tolist() == [0, 1, 2]


def test_a_seeded_loader_gives_the_batches_it_would_give() -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(DATA, 6, shuffle=True, generator=torch.Generator().manual_seed(3))

    expected = [y.tolist() for _, y in loader()]
    assert [y.tolist() for _, y, _ in batches(loader()).indexed()] == expected
