from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin.modules import evaluating


def network() -> nn.Sequential:
    """In training mode, but for its first batch norm and its dropout, which were put to evaluation on purpose."""
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2)))
    network[1].eval()
    network[2].eval()
    return network


def modes(network: nn.Module) -> list[bool]:
    return [module.training for module in network.modules()]


def test_every_module_is_back_in_its_own_mode() -> None:
    model = network()
    before = modes(model)
    assert sorted(before) == [False, False, True, True, True, True]
    with evaluating(model):
        assert not any(modes(model))
    assert modes(model) == before


def test_also_after_an_error() -> None:
    model = network()
    before = modes(model)
    with pytest.raises(RuntimeError, match="inside"), evaluating(model):
        raise RuntimeError("inside")
    assert modes(model) == before


def test_a_network_in_evaluation_mode_stays_there() -> None:
    model = network().eval()
    with evaluating(model):
        pass
    assert not any(modes(model))


def test_a_network_with_a_train_of_its_own() -> None:
    """Some networks override `train` to keep a layer in evaluation: it is not asked on the way back."""

    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def train(self, mode: bool = True) -> Stubborn:
            super().train(mode)
            self.norm.eval()
            return self

    model = Stubborn()
    model.norm.training = True  # the user woke it after all
    with evaluating(model):
        assert not model.norm.training
    assert modes(model) == [True, True]


def test_statistics_do_not_move_inside() -> None:
    model = nn.BatchNorm1d(2)
    with evaluating(model):
        model(torch.randn(5, 2))
    assert model.num_batches_tracked is not None
    assert model.num_batches_tracked.item() == 0
