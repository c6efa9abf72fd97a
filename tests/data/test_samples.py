from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from widemargin.data import Data, Samples, batches, to_sphere
from widemargin.data.samples import _check


def test_samples_are_a_dataset_of_pairs() -> None:
    samples = Samples(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 2]))
    assert len(samples) == 3
    x, y = samples[1]
    assert x.tolist() == [2.0, 3.0]
    assert y.item() == 1
    (batch,) = DataLoader(samples, batch_size=3)
    assert torch.equal(batch[0], samples.x)
    assert torch.equal(batch[1], samples.y)


def test_select_keeps_track_of_the_first_index() -> None:
    samples = Samples(torch.arange(10.0).unsqueeze(1), torch.arange(10))
    once = samples.select(torch.tensor([9, 5, 7, 1]))
    twice = once.select(torch.tensor([3, 0]))
    assert once.index is not None
    assert once.index.tolist() == [9, 5, 7, 1]
    assert twice.index is not None
    assert twice.index.tolist() == [1, 9]
    assert twice.x[:, 0].tolist() == [1.0, 9.0]
    assert twice.y.tolist() == [1, 9]


def test_to_moves_all_three_tensors() -> None:
    samples = Samples(torch.zeros(2, 1), torch.zeros(2), torch.arange(2)).to("meta")
    assert samples.index is not None
    assert {samples.x.device.type, samples.y.device.type, samples.index.device.type} == {"meta"}


def test_samples_check_themselves() -> None:
    with pytest.raises(ValueError, match=r"x has 2 .*y has 3 "):
        Samples(torch.zeros(2, 1), torch.zeros(3))


def test_repr_is_short_and_samples_go_to_workers() -> None:
    samples = Samples(torch.zeros(2, 3), torch.zeros(2))
    assert repr(samples) == "Samples(2 of [3] torch.float32 on cpu)"
    assert torch.equal(pickle.loads(pickle.dumps(samples)).x, samples.x)


def test_map_takes_both_parts_and_forgets_the_range() -> None:
    part = Samples(torch.ones(2, 4), torch.zeros(2))
    data = Data("ones", part, part.select(torch.tensor([0])), ("a",), (0.0, 1.0))
    mapped = data.map(to_sphere)
    assert mapped.bounds is None
    assert mapped.classes == data.classes
    assert (len(mapped.train), len(mapped.test)) == (2, 1)
    assert data.map(to_sphere, bounds=(0.0, 2.0)).bounds == (0.0, 2.0)


@pytest.mark.parametrize(
    ("x", "y", "index", "sentence"),
    [
        ([1.0], torch.zeros(1), None, "x is a list"),
        (torch.zeros(1), None, None, "y is a NoneType"),
        (torch.tensor(1.0), torch.zeros(1), None, "x is a single number"),
        (torch.zeros(2, 1), torch.zeros(2, 1), None, r"y has shape \[2, 1\]"),
        (torch.zeros(2, 1), torch.zeros(3), None, r"x has 2 .*y has 3 "),
        (torch.zeros(0, 1), torch.zeros(0), None, "empty"),
        (torch.zeros(1, device="meta"), torch.zeros(1), None, r"x is on meta.*cpu"),
        (torch.zeros(2), torch.zeros(2), torch.zeros(3, dtype=torch.int64), r"index has shape \[3\]"),
    ],
)
def test_what_does_not_fit_is_one_sentence(x: object, y: object, index: torch.Tensor | None, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        _check(x, y, index)


def test_labels_that_are_true_or_false_are_refused() -> None:
    with pytest.raises(TypeError, match=r"y has dtype torch\.bool"):
        Samples(torch.ones(2, 3), torch.tensor([True, False]))
    loader = DataLoader(TensorDataset(torch.ones(2, 3), torch.tensor([True, False])))
    with pytest.raises(TypeError, match=r"y of batch 0 of data has dtype torch\.bool"):
        list(batches(loader))
