from __future__ import annotations

import torch
from torch import Tensor, nn

from widemargin.models.outline import places
from zoo import Gated, Unrolled, VisionTransformer


class Skipping(nn.Module):
    """A module that never runs, one that runs twice, and one that ends before the one that is called first."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.twice = nn.ReLU()
        self.outer = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.output = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.twice(self.outer(self.twice(x))))
        return scores


def test_only_modules_that_run_once_in_the_order_in_which_they_end() -> None:
    assert places(Skipping(), (2,)) == ("input", "outer.0", "outer.1", "outer", "output")


def test_a_tuple_or_a_repeated_cell_is_no_place() -> None:
    assert places(Gated(), (5, 4)) == ("input", "embed", "output")
    assert places(Unrolled(), (5, 4)) == ("input", "embed", "output")


def test_blocks_come_after_their_layers() -> None:
    found = places(VisionTransformer(), (1, 8, 8))
    assert found[:2] == ("input", "patches")
    assert found[-2:] == ("block", "output")


def test_the_network_is_left_as_it_was() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Linear(2, 2)).double()
    network[1].eval()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    places(network, (2,))
    assert [module.training for module in network.modules()] == [True, True, False, True, True]
    assert all(not module._forward_hooks for module in network.modules())
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())
