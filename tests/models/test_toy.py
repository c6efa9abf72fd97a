from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin.models.toy import elsayed_toy, toy_mlp


def test_layers_and_shapes() -> None:
    network = toy_mlp(inputs=3, hidden=(5, 4), classes=6)
    assert [name for name, _ in network.named_children()] == ["fc1", "relu1", "fc2", "relu2", "output"]
    assert sum(weight.numel() for weight in network.parameters()) == 4 * 5 + 6 * 4 + 5 * 6
    assert network(torch.zeros(2, 3)).shape == (2, 6)


def test_without_hidden_layers_it_is_affine() -> None:
    network = toy_mlp(hidden=())
    assert [type(layer) for layer in network] == [nn.Linear]


def test_figure_1b_has_four_layers() -> None:
    network = elsayed_toy(width=8)
    assert sum(isinstance(layer, nn.Linear) for layer in network) == 4
    assert network(torch.zeros(3, 2)).shape == (3, 2)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"^width is 0,"):
        elsayed_toy(width=0)
    with pytest.raises(ValueError, match=r"^hidden\[1\] is -1,"):
        toy_mlp(hidden=(3, -1))
