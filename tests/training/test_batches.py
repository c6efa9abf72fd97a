from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, SubsetRandomSampler

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
    ],
)
def test_the_number_of_samples_is_that_of_an_epoch(form: Any, count: int) -> None:
    replica = Replica(device=CPU, dtype=torch.float64)
    assert source(form(samples()), batch_size=20, seed=0, replica=replica).count == count


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
