from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from widemargin.data import Data, Samples, batches, load, read
from widemargin.modules import NamedInputs

X, Y = torch.arange(20.0).reshape(10, 2), torch.arange(10)


class Plain(Dataset[tuple[Tensor, int]]):
    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return X[i], i


class Stream(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return ((X[i], i) for i in range(10))


class NoLength(Dataset[tuple[Tensor, int]]):
    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return X[i], i


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        Samples(X, Y),
        TensorDataset(X, Y),
        Data("ten", Samples(X[:1], Y[:1]), Samples(X, Y), ("a",), None),
        Plain(),
        Stream(),
        DataLoader(Plain(), batch_size=4),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_kind_of_data_gives_the_same_batches(data: object) -> None:
    found = batches(data, batch_size=4)
    for _ in range(2):  # as often as it is iterated
        parts = list(found)
        assert [len(x) for x, _ in parts] == [4, 4, 2]
        assert torch.equal(torch.cat([x for x, _ in parts]), X)
        assert torch.equal(torch.cat([y for _, y in parts]), Y)
    assert operator.length_hint(found) == (0 if isinstance(data, Stream) else 3)


@given(st.integers(1, 30), st.integers(1, 40))
def test_the_length_is_the_number_of_batches(n: int, batch_size: int) -> None:
    found = batches((torch.zeros(n, 1), torch.zeros(n)), batch_size=batch_size)
    assert len(found) == len(list(found))
    assert sum(len(y) for _, y in found) == n


@pytest.mark.parametrize("key", ["labels", "label", "y"])
def test_a_mapping_gives_tensors_by_name(key: str) -> None:
    rows: Any = [{"ids": X[i], "mask": X[i] > 3, "text": "a", key: i} for i in range(10)]
    pairs: Any = [({"ids": X[i], "mask": X[i] > 3}, i) for i in range(10)]
    for data in (DataLoader(rows, batch_size=4), DataLoader(pairs)):
        x, y = next(iter(batches(data)))
        assert isinstance(x, NamedInputs)
        assert x.keys() == ["ids", "mask"]
        assert len(x) == len(y)
        assert torch.equal(x["ids"], X[: len(y)])


def test_names_as_labels_of_a_loader_need_all_classes() -> None:
    rows: Any = [(X[i], "ab"[i % 2]) for i in range(10)]
    assert read(DataLoader(rows, batch_size=4), classes=["b", "a"]).y.tolist() == [1, 0] * 5


def test_the_classes_of_a_data_set_of_torchvisions_kind() -> None:
    data = Plain()
    data.classes = ["one", "two"]  # type: ignore[attr-defined]
    assert batches(data).classes == batches(DataLoader(data)).classes == ("one", "two")


@pytest.mark.parametrize("data", [Plain(), DataLoader(Plain(), 3, shuffle=True), "toy"], ids=["set", "loader", "name"])
def test_read_is_in_the_order_of_the_data_set(data: object) -> None:
    samples, expected = read(data), load("toy").train if isinstance(data, str) else Samples(X, Y)
    assert torch.equal(samples.x, expected.x)
    assert torch.equal(samples.y, expected.y)
    assert samples.classes == (("upper moon", "lower moon") if isinstance(data, str) else ())


def test_tensors_are_not_copied() -> None:
    (_, first), (x, _) = list(batches((X, Y), batch_size=5))
    assert first.data_ptr() == Y.data_ptr()
    assert x.untyped_storage().data_ptr() == X.untyped_storage().data_ptr()


def test_a_name_and_its_splits() -> None:
    toy = load("toy")
    assert torch.equal(next(iter(batches("toy", batch_size=7)))[0], toy.test.x[:7])
    assert torch.equal(next(iter(batches("toy", batch_size=7, split="train")))[0], toy.train.x[:7])
    assert torch.equal(next(iter(batches(toy, split="train")))[0], toy.train.x[:256])


def test_a_loader_keeps_its_own_batch_size() -> None:
    assert len(batches(DataLoader(Plain(), batch_size=3), batch_size=256)) == 4


@pytest.mark.parametrize(
    ("data", "error", "sentence"),
    [
        (3, TypeError, "data is a int"),
        (X, TypeError, "data is a Tensor"),
        (None, TypeError, "data is a NoneType"),
        ("toys", ValueError, "name is 'toys'"),
        ((X, Y, Y), TypeError, r"data is a tuple of 3 \(Tensor, Tensor, Tensor\)"),
        (({"ids": X}, Y), TypeError, "data is a pair of a mapping and labels"),
        ((X, Y[:3]), ValueError, r"x has 10 .*y has 3 "),
        ((X[:0], Y[:0]), ValueError, "empty"),
        (TensorDataset(X), TypeError, "tuple of 1"),
        (Plain(0), ValueError, "data is an empty Plain"),
        (NoLength(), TypeError, "data is a NoLength"),
    ],
)
def test_anything_else_is_one_sentence(data: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        batches(data)


@pytest.mark.parametrize(
    ("items", "error", "sentence"),
    [
        ([{"image": X[0], "target": 0}], TypeError, "batch 0 of data has the keys image, target"),
        ([{"text": "a", "label": 0}], TypeError, r"batch 0 of data has no tensor of inputs among text \(list\)"),
        ([(X[0], 0, 0)], TypeError, r"batch 0 of data .*\(Tensor, Tensor, Tensor\)"),
        ([(X[0], "cat")], TypeError, r"batch 0 of data has names as labels \('cat'\)"),
    ],
)
def test_batches_of_something_else_are_one_sentence(items: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        list(batches(DataLoader(items)))


def test_batches_of_unequal_lengths_are_one_sentence() -> None:
    loader = DataLoader(Plain(1), collate_fn=lambda _: (X, Y[:3]))
    with pytest.raises(ValueError, match=r"batch 0 of data .*\[10, 2\] .*\[3\]"):
        list(batches(loader))


@pytest.mark.parametrize("batch_size", [0, -1, True])
def test_batch_size_is_a_number_of_samples(batch_size: int) -> None:
    with pytest.raises((TypeError, ValueError), match=f"batch_size is {batch_size}"):
        batches((X, Y), batch_size=batch_size)


def test_there_are_two_splits() -> None:
    with pytest.raises(ValueError, match="split is 'validation'"):
        batches((X, Y), split="validation")
