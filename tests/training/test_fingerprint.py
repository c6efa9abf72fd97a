from __future__ import annotations

import functools

import torch
from torch import nn
from torch.utils.data import DataLoader

from training.cases import Norm, network, samples
from training.test_fit import Unstacked
from widemargin import losses
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
