from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, SubsetRandomSampler

from training.cases import Norm, network, samples
from training.test_fit import Unstacked
from widemargin import losses
from widemargin.data import Samples
from widemargin.training import AdamW
from widemargin.training.fingerprint import describe, first_difference


def test_values_are_their_words() -> None:
    assert describe(AdamW(lr=0.1)) == "AdamW(lr=0.1, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)"
    assert describe(losses.MultiClassHinge()) == "MultiClassHinge(gamma=1.0, kind='crammer-singer')"
    assert describe(None) == "None"


def test_functions_and_objects_are_named_without_their_addresses() -> None:
    assert describe(describe) == "widemargin.training.fingerprint.describe"
    assert describe(functools.partial(describe, 1)).startswith("widemargin.training.fingerprint.describe(1)")
    assert "0x" not in describe(object()) + describe(Norm()) + describe(Unstacked(samples()))


def test_functions_of_your_own_differ_by_code_defaults_and_enclosed_values() -> None:
    def scaled(by: float) -> Callable[[float], float]:
        return lambda x: by * x

    def first(x: float, power: float = 2.0) -> float:
        return x**power

    def second(x: float, power: float = 3.0) -> float:
        return x**power

    assert describe(scaled(1.0)) == describe(scaled(1.0))
    second.__qualname__ = first.__qualname__
    words = [scaled(1.0), scaled(50.0), first, second, lambda x: x + 1, lambda x: x + 2, lambda x: x - 1]
    assert len({describe(word) for word in words}) == len(words)
    partials = [functools.partial(map, function=function) for function in (scaled(1.0), scaled(2.0))]
    assert describe(partials[0]) != describe(partials[1])
    assert "0x" not in describe(partials[0])


def test_objects_of_your_own_differ_by_their_attributes() -> None:
    class Own:
        def __init__(self, weight: float) -> None:
            self.weight, self.itself = weight, Own

    assert describe(Own(1.0)) == describe(Own(1.0)) != describe(Own(2.0))
    cycle = Own(1.0)
    cycle.itself = (cycle,)  # type: ignore[assignment]
    assert "Own" in describe(cycle)


def test_data_sets_of_your_own_differ_by_samples_labels_and_indices() -> None:
    class Labelled(Unstacked):
        def __init__(self, data: Samples) -> None:
            super().__init__(data)
            self.targets = data.y.tolist()

    changed, relabelled = samples(), samples()
    changed.x[0] += 1
    relabelled.y[1] = (relabelled.y[1] + 1) % 3
    assert describe(Unstacked(samples())) == describe(Unstacked(samples())) != describe(Unstacked(changed))
    assert describe(Labelled(samples())) != describe(Labelled(relabelled))
    parts = [Subset(Unstacked(samples()), indices) for indices in ([0, 1], [0, 2])]
    assert describe(parts[0]) != describe(parts[1])
    assert describe(ConcatDataset(parts)) != describe(ConcatDataset(parts[::-1]))
    loaders = [DataLoader(samples(), sampler=SubsetRandomSampler(indices)) for indices in ([0, 1], [0, 2])]
    assert describe(loaders[0]) != describe(loaders[1])


def test_reading_samples_leaves_the_generators_as_they_are() -> None:
    class Random(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            return torch.rand(2), i

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert describe(Random()) == describe(Random())
    assert torch.equal(torch.rand(1), expected)


def test_networks_differ_by_their_layers_shapes_and_dtypes_not_by_their_weights() -> None:
    assert describe(nn.Linear(2, 3)) == describe(nn.Linear(2, 3))
    words = [describe(m) for m in (nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(2, 3).double(), network(dropout=0.1))]
    assert len({*words, describe(network())}) == 5


def test_data_differ_by_every_number() -> None:
    data, other = samples(), samples()
    other.x[3, 1] += 1e-15
    flipped = samples()
    flipped.y[0] = 2
    assert describe(data) == describe(samples())
    assert len({describe(d) for d in (data, other, flipped, samples(46))}) == 4
    assert describe((data.x, data.y)) != describe((other.x, other.y))
    assert describe(DataLoader(data, batch_size=3)) != describe(DataLoader(other, batch_size=3))
    assert describe(torch.ones(0)) == describe(torch.ones(0))


def test_long_words_end_in_a_digest() -> None:
    alpha = tuple(float(i) for i in range(500))
    one, two = describe(losses.Target(alpha=alpha)), describe(losses.Target(alpha=(*alpha[:-1], 0.5)))
    assert len(one) < 150
    assert one != two


def test_the_first_difference_is_named() -> None:
    assert first_difference({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) is None
    assert first_difference({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == "b"
    assert first_difference({"a": "1", "c": "2"}, {"a": "1"}) == "c"
    assert first_difference({"a": "1"}, {"a": "1", "c": "2"}) == "c"
