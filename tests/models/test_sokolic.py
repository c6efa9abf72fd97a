from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from widemargin.models.sokolic import sokolic_cnn, sokolic_mlp


def parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_mlps_of_figure_2(layers: int) -> None:
    network = sokolic_mlp(layers=layers)
    widths = [784, 784, 392, 392][: layers + 1]
    hidden = sum((a + 1) * b for a, b in pairwise(widths))
    assert parameters(network) == hidden + widths[-1] * 10
    assert network(torch.zeros(2, 784)).shape == network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_the_mlp_by_hand() -> None:
    network = sokolic_mlp(inputs=5, layers=3, first=7, higher=6, classes=4).double()
    x = torch.randn(3, 5, dtype=torch.float64)
    weight = dict(network.named_parameters())
    f = x
    for layer in ("fc1", "fc2", "fc3"):
        f = (f @ weight[f"{layer}.weight"].T + weight[f"{layer}.bias"]).clamp(min=0)
    torch.testing.assert_close(network(x), f @ weight["output.weight"].T)


@pytest.mark.parametrize(("layers", "pixels"), [(2, 7), (3, 7)])
def test_the_cnns_of_table_1(layers: int, pixels: int) -> None:
    network = sokolic_cnn(layers=layers)
    convolutions = (25 + 1) * 32 + (layers - 1) * (32 * 25 + 1) * 32
    assert parameters(network) == convolutions + 32 * pixels**2 * 10
    pooled = [nn.Conv2d, nn.ReLU, nn.MaxPool2d]
    third = [nn.Conv2d, nn.ReLU] if layers == 3 else []
    assert [type(layer) for layer in network] == [*pooled, *pooled, *third, nn.Flatten, nn.Linear]
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_the_classifier_can_have_a_bias() -> None:
    for build in (sokolic_mlp, sokolic_cnn):
        assert build(layers=1).get_submodule("output").bias is None
        assert build(layers=1, classifier_bias=True).get_submodule("output").bias is not None


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"^layers is 0,"):
        sokolic_mlp(layers=0)
    with pytest.raises(ValueError, match="size"):
        sokolic_cnn(size=3)
