from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from training.cases import samples
from training.test_fit import Unstacked
from widemargin.training.batches import Batch, Replica, source

CPU = torch.device("cpu")


def batches(data: Any, epoch: int = 0, start: int = 0, **share: Any) -> list[Batch]:
    replica = Replica(device=CPU, dtype=torch.float64, **share)
    return list(source(data, batch_size=20, seed=0, replica=replica).epoch(epoch, start=start))


def positions(found: list[Batch]) -> Tensor:
    parts = [batch.index for batch in found if batch.index is not None]
    assert len(parts) == len(found)
    return torch.cat(parts)


@pytest.mark.parametrize("form", [lambda s: s, Unstacked])
def test_an_epoch_is_a_permutation_and_each_its_own(form: Any) -> None:
    data = form(samples())
    first, second = positions(batches(data)), positions(batches(data, 1))
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(47))
    assert not torch.equal(first, second)
    assert [len(batch.y) for batch in batches(data)] == [batch.joint for batch in batches(data)] == [20, 20, 7]
    for batch in batches(data):
        assert batch.index is not None
        assert torch.equal(batch.x, samples().x[batch.index])
        assert torch.equal(batch.y, samples().y[batch.index])


@pytest.mark.parametrize(
    ("form", "count"),
    [
        (lambda s: s, 47),
        (Unstacked, 47),
        (lambda s: DataLoader(s, batch_size=20), 47),
        (lambda s: DataLoader(s, batch_size=20, sampler=SubsetRandomSampler(range(9))), 9),
        (lambda s: DataLoader(s, batch_size=20, sampler=RandomSampler(s, num_samples=500, replacement=True)), 47),
        (lambda s: DataLoader(s, batch_size=20, sampler=WeightedRandomSampler([1.0] * 3 + [0.0] * 44, 90)), 3),
        (lambda s: DataLoader(s, batch_sampler=[[0, 1], [1, 5, 6]]), 4),
        (lambda s: DataLoader(s, batch_size=20, sampler=itertools.cycle(range(30))), 30),
        (lambda s: DataLoader(TensorDataset(s.x[None], s.y[None]), batch_size=None), None),
    ],
)
def test_the_number_of_samples_is_that_of_an_epoch(form: Any, count: int | None) -> None:
    replica = Replica(device=CPU, dtype=torch.float64)
    assert source(form(samples()), batch_size=20, seed=0, replica=replica).count == count


def measured(data: Any, count: int) -> list[int]:
    """The labels, which are positions, of the samples that are measured while training."""
    part = source(data, batch_size=20, seed=0, replica=Replica(device=CPU, dtype=torch.float64)).some(count)
    assert part is not None
    assert isinstance(part[0], DataLoader)
    return sorted(torch.cat([y for _, y in part[0]]).tolist())


@pytest.mark.parametrize(
    "form",
    [
        lambda d: DataLoader(d, batch_size=20, sampler=SubsetRandomSampler(range(9))),
        lambda d: DataLoader(d, batch_sampler=[[8, 7, 6, 5], [4, 3, 2, 1, 0, 8]]),
    ],
)
def test_the_samples_that_are_measured_are_those_that_the_sampler_draws(form: Any) -> None:
    loader = form(TensorDataset(samples().x, torch.arange(47)))
    assert measured(loader, 100) == list(range(9))
    assert set(measured(loader, 4)) < set(range(9))


def test_keys_of_a_data_set_are_its_positions() -> None:
    class Named(Dataset[Any]):
        def __len__(self) -> int:
            return 47

        def __getitem__(self, key: str) -> Any:
            return samples().x[int(key[1:])], int(key[1:])

    loader = DataLoader(Named(), batch_size=4, sampler=["n7", "n3", "n9"])
    assert measured(loader, 100) == [3, 7, 9]


def test_a_loader_of_whole_batches_is_measured_by_whole_batches() -> None:
    x, y = samples(40).x, torch.arange(40)
    whole = TensorDataset(x.view(8, 5, 6), y.view(8, 5))
    assert measured(DataLoader(whole, batch_size=None), 100) == list(range(40))
    assert len(measured(DataLoader(whole, batch_size=None), 12)) == 15


@pytest.mark.parametrize(
    ("count", "fewest", "sizes"),
    [
        (47, 1, [20, 20, 7]),
        (41, 1, [20, 20, 1]),
        (41, 2, [20, 21]),
        (40, 2, [20, 20]),
        (1, 2, [1]),
        (42, 2, [20, 20, 2]),
    ],
)
def test_a_last_batch_that_is_too_small_is_joined_to_the_one_before(count: int, fewest: int, sizes: list[int]) -> None:
    replica = Replica(device=CPU, dtype=torch.float64)
    for data in (samples(count), Unstacked(samples(count))):
        found = source(data, batch_size=20, seed=0, replica=replica, fewest=fewest)
        epoch = list(found.epoch(0))
        assert [len(batch.y) for batch in epoch] == sizes
        assert found.steps == len(sizes)
        assert positions(epoch).sort().values.tolist() == list(range(count))


@pytest.mark.parametrize("form", [lambda s: s, Unstacked, lambda s: DataLoader(s, batch_size=20, shuffle=True)])
def test_the_shares_of_processes_make_up_the_batches(form: Any) -> None:
    whole = batches(form(samples()))
    shares = [batches(form(samples()), rank=rank, processes=3) for rank in range(3)]
    for batch, *parts in zip(whole, *shares):
        assert torch.equal(torch.cat([part.x for part in parts]), batch.x)
        assert torch.equal(torch.cat([part.y for part in parts]), batch.y)
        assert {part.joint for part in parts} == {batch.joint}
        assert max(len(part.y) for part in parts) - min(len(part.y) for part in parts) <= 1


@pytest.mark.parametrize("form", [lambda s: s, Unstacked, lambda s: DataLoader(s, batch_size=20, shuffle=True)])
def test_an_epoch_can_begin_in_its_middle(form: Any) -> None:
    whole, rest = batches(form(samples()), 4), batches(form(samples()), 4, start=2)
    assert len(rest) == 1
    assert torch.equal(rest[0].x, whole[2].x)
    assert batches(form(samples()), 4, start=3) == []


def test_a_sampler_is_told_the_epoch() -> None:
    class Sampler(torch.utils.data.Sampler[int]):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Any:
            return iter([self.epoch])

    loader = DataLoader(samples(), batch_size=1, sampler=Sampler())
    assert torch.equal(batches(loader, 5)[0].x[0], samples().x[5])


def test_floating_point_inputs_take_the_dtype_and_tokens_do_not() -> None:
    tokens = torch.zeros(4, 3, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    assert batches(tokens)[0].x.dtype == torch.int64
    assert batches(samples(dtype=torch.float32))[0].x.dtype == torch.float64


def test_a_batch_too_small_to_share_is_told_before() -> None:
    sentence = "batch_size is 20, which leaves 1 of the 41 samples in the last batch, too few for 2 processes"
    for data in (samples(41), Unstacked(samples(41))):
        with pytest.raises(ValueError, match=sentence):
            batches(data, processes=2)
    with pytest.raises(ValueError, match="batch 2 of data has 1 samples for 2 processes"):
        batches(DataLoader(samples(41), batch_size=20), processes=2)
