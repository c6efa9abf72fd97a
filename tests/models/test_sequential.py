from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin.models.sequential import SequentialBuilder


def test_layers_are_named_by_kind_and_number() -> None:
    builder = SequentialBuilder(channels=2, size=9)
    builder.conv(3, kernel=3)
    builder.add("relu", nn.ReLU())
    builder.conv(4, kernel=3, stride=2)
    builder.add("relu", nn.ReLU())
    builder.pool(2, stride=2)
    builder.flatten()
    builder.linear(6)
    network = builder.output(5)
    names = ["conv1", "relu1", "conv2", "relu2", "pool1", "flatten", "fc1", "relu3", "output"]
    assert [name for name, _ in network.named_children()] == names


@pytest.mark.parametrize("size", range(3, 14))
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 1)])
def test_the_followed_shape_is_the_real_one(size: int, kernel: int, stride: int) -> None:
    """The linear layer after flatten fits only when the bookkeeping agrees with PyTorch's."""
    builder = SequentialBuilder(channels=2, size=size)
    builder.conv(3, kernel=kernel, stride=stride)
    if builder.size >= 3:
        builder.pool(3, stride=2)
    builder.flatten()
    assert builder.output(5)(torch.zeros(2, 2, size, size)).shape == (2, 5)


def test_bias_is_everywhere_or_nowhere_and_can_differ_at_the_output() -> None:
    def biases(bias: bool, output: bool | None) -> list[bool]:
        builder = SequentialBuilder(channels=1, size=4, bias=bias)
        builder.conv(2, kernel=3)
        builder.flatten()
        builder.linear(3)
        layers = [layer for layer in builder.output(2, bias=output) if isinstance(layer, nn.Conv2d | nn.Linear)]
        return [layer.bias is not None for layer in layers]

    assert biases(True, None) == [True, True, True]
    assert biases(False, None) == [False, False, False]
    assert biases(True, False) == [True, True, False]


def test_an_image_too_small_is_a_sentence() -> None:
    builder = SequentialBuilder(channels=1, size=3)
    builder.pool(2, stride=2)
    with pytest.raises(ValueError, match="size"):
        builder.pool(2, stride=2)
