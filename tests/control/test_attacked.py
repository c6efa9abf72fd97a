"""Twins with and without randomly labelled points."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from widemargin.control import AttackedTwins, attacked_twins
from widemargin.data import Samples
from widemargin.margins.normalized import frobenius
from widemargin.models import farhang_mlp
from widemargin.training import Exponential, Nero


def builder() -> nn.Module:
    return farhang_mlp(inputs=10, width=256, depth=3, outputs=3)


def clouds(count: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    return Samples(3 * torch.eye(10)[y] + torch.randn(count, 10, generator=generator), y)


@pytest.fixture(scope="module")
def twins() -> AttackedTwins:
    return attacked_twins(
        builder,
        clouds(9, 0),
        clouds(15, 1),
        targets=(0.5, 1.0),
        test=clouds(300, 2),
        steps=200,
        schedule=Exponential(factor=0.97),
        optimizer=Nero(lr=0.02),
        progress=False,
    )


def test_twins_have_the_same_margins_and_the_attacked_one_generalizes_less(twins: AttackedTwins) -> None:
    for row, target in enumerate(twins.targets):
        for margins in (twins.control_margins, twins.attacked_margins):
            assert float((margins[row] - target).abs().max()) < 0.01 * target
    assert twins.control_accuracies.tolist() == twins.attacked_accuracies.tolist() == [1.0, 1.0]
    assert twins.control_test_accuracies is not None
    assert twins.attacked_test_accuracies is not None
    assert bool((twins.control_test_accuracies > twins.attacked_test_accuracies).all())


def test_margins_are_those_of_the_clean_points(twins: AttackedTwins) -> None:
    clean = clouds(9, 0)
    for row, network in enumerate(twins.attacked):
        assert torch.allclose(frobenius(network, clean.x, clean.y).detach(), twins.attacked_margins[row], atol=1e-5)


def test_a_binary_pair_and_no_test_set() -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    found = attacked_twins(
        lambda: farhang_mlp(inputs=4, width=128, depth=3, outputs=1),
        Samples(x[:3], torch.tensor([1.0, -1.0, 1.0])),
        Samples(x[3:], torch.ones(3)),
        steps=200,
        schedule=Exponential(factor=0.97),
        progress=False,
    )
    assert found.targets == (1.0,)
    assert float((found.attacked_margins - 1).abs().max()) < 0.01
    assert found.control_test_accuracies is found.attacked_test_accuracies is None


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("targets", [(), (1.0, -1.0), (float("nan"),)])
def test_a_mistake_gets_its_sentence(targets: Any) -> None:
    with pytest.raises(ValueError, match=r"^targets"):
        attacked_twins(builder, clouds(3, 0), clouds(3, 1), targets=targets)
