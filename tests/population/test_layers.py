"""Layers of a population: which ones it refuses, and that networks are left as they were."""

from __future__ import annotations

import pytest
from torch import nn

from widemargin.population.layers import Dropout, check_layers, stacked_layers, with_own_dropout


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.LSTM(3, 3), nn.AlphaDropout(0.1), nn.SyncBatchNorm(3)),
        nn.BatchNorm1d(3, momentum=None),
    ],
    ids=str,
)
def test_layers_that_can_not_be_stacked_are_named(layer: nn.Module) -> None:
    with pytest.raises(TypeError, match=f"layer '1', {type(layer).__name__}"):
        check_layers(nn.Sequential(nn.Linear(3, 3), layer))


def test_all_other_layers_pass() -> None:
    check_layers(
        nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None, track_running_stats=False), nn.GELU())
    )


def test_forwards_are_replaced_inside_the_block_alone() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.GroupNorm(1, 2), nn.ReLU())
    for convolutions, replaced in (("grouped", "03"), ("matmul", "013"), ("fused", "0123")):
        with stacked_layers(network, convolutions):  # type: ignore[arg-type]
            assert "".join(name for name, m in network.named_children() if "forward" in vars(m)) == replaced
        assert not any("forward" in vars(module) for module in network)


def test_dropout_layers_are_replaced_and_numbered() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout2d(0.2)), nn.Dropout(0.0))
    own = with_own_dropout(network)
    assert [(one.p, one.dims, one.number) for one in own] == [(0.5, 0, 0), (0.2, 2, 1)]
    assert isinstance(network[0], Dropout)
    assert isinstance(network[2], nn.Dropout)
