"""How compact classes are in a plane, against loops over samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin import models
from widemargin.data import Samples
from widemargin.studies import embedding


def test_variances_are_those_of_a_loop_and_add_up() -> None:
    draw = torch.Generator().manual_seed(0)
    points, labels = torch.randn(50, 2, generator=draw, dtype=torch.float64), torch.randint(3, (50,), generator=draw)
    between, within = embedding.variances(points, labels)
    centres = {c: points[labels == c].mean(dim=0) for c in range(3)}
    loop = sum(float((centres[int(y)] - points.mean(dim=0)).square().sum()) for y in labels) / 50
    assert between == pytest.approx(loop)
    assert within == pytest.approx(
        sum(float((z - centres[int(y)]).square().sum()) for z, y in zip(points, labels)) / 50
    )
    assert between + within == pytest.approx(float(points.var(dim=0, correction=0).sum()))


def test_the_paper_s_ratio_is_large_where_classes_are_compact() -> None:
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    labels = torch.arange(20) % 2
    tight = centres[labels] + 0.1 * torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
    between, within = embedding.variances(tight, labels)
    assert between == pytest.approx(25, rel=0.05)
    assert between / within > 100


def test_the_last_hidden_layer_is_what_enters_the_classifier() -> None:
    torch.manual_seed(0)
    network = models.build("odn-mnist-cnn", size=8, widths=(2, 3), hidden=(5,))
    x = torch.rand(7, 1, 8, 8)
    hidden = embedding.last_hidden(network, Samples(x, torch.zeros(7, dtype=torch.int64)), batch_size=3)
    assert isinstance(network, nn.Sequential)
    torch.testing.assert_close(network[-1](hidden), network(x))
    assert not network[-1]._forward_pre_hooks


def test_tsne_keeps_apart_what_is_apart_and_takes_a_dead_layer() -> None:
    labels = torch.arange(24) % 3
    features = 20.0 * nn.functional.one_hot(labels, 8).double() + torch.rand(24, 8, dtype=torch.float64)
    between, within = embedding.variances(embedding.tsne(features, seed=0), labels)
    assert between > 3 * within
    assert bool(torch.isfinite(embedding.tsne(torch.zeros(12, 4), seed=0)).all())
