from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin.models.odn import alexnet, odn_cnn


def parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_the_mnist_network() -> None:
    network = odn_cnn()
    expected = (25 + 1) * 20 + (20 * 25 + 1) * 50 + (50 * 7 * 7 + 1) * 500 + (500 + 1) * 10
    assert parameters(network) == expected
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert odn_cnn(size=8)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_alexnet_has_the_originals_widths(batch_norm: bool) -> None:
    with torch.device("meta"):
        network = alexnet(batch_norm=batch_norm)
        scores = network.eval()(torch.zeros(2, 3, 32, 32))
    channels = (3, 96, 256, 384, 384, 256)
    convolutions = sum((a * k * k + 1) * b for a, b, k in zip(channels, channels[1:], (5, 5, 3, 3, 3)))
    layers = (256 * 3 * 3 + 1) * 4096 + (4096 + 1) * 4096 + (4096 + 1) * 10
    norms = 2 * sum(channels[1:]) if batch_norm else 0
    assert parameters(network) == convolutions + layers + norms
    assert scores.shape == (2, 10)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_alexnet_with_and_without_dropout_and_batch_norm(dropout: bool, batch_norm: bool) -> None:
    network = alexnet(size=16, widths=(3, 4, 4, 4, 3), hidden=(8, 8), dropout=dropout, batch_norm=batch_norm)
    convolution = [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] if batch_norm else [nn.Conv2d, nn.ReLU]
    hidden = [nn.Dropout, nn.Linear, nn.ReLU] if dropout else [nn.Linear, nn.ReLU]
    pooled = [*convolution, nn.MaxPool2d]
    kinds = [*pooled * 2, *convolution * 2, *pooled, nn.Flatten, *hidden * 2, nn.Linear]
    assert [type(layer) for layer in network] == kinds
    assert all(layer.p == 0.5 for layer in network if isinstance(layer, nn.Dropout))


def test_alexnet_may_start_with_weights_that_keep_the_signal() -> None:
    torch.manual_seed(0)
    network = alexnet(widths=(8, 16, 16, 16, 16), hidden=(64, 64), he=True, dropout=False)
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    assert float(weights["conv2.weight"].std()) == pytest.approx((2 / (8 * 25)) ** 0.5, rel=0.05)
    assert not any(bool(weight.any()) for name, weight in weights.items() if name.endswith("bias"))
    x = torch.randn(20, 3, 32, 32)
    usual = alexnet(widths=(8, 16, 16, 16, 16), hidden=(64, 64), dropout=False)
    assert network(x).std(dim=0).mean() > 30 * usual(x).std(dim=0).mean()


def test_pools_overlap() -> None:
    pools = [layer for layer in alexnet(widths=(1,) * 5, hidden=(1,)) if isinstance(layer, nn.MaxPool2d)]
    assert [(pool.kernel_size, pool.stride) for pool in pools] == [(3, 2)] * 3


def test_the_smallest_image() -> None:
    small = {"widths": (1,) * 5, "hidden": (2,)}
    assert alexnet(size=15, **small)(torch.zeros(1, 3, 15, 15)).shape == (1, 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^size is 14,"):
        alexnet(size=14, **small)  # type: ignore[arg-type]


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"^widths has 3 entries,"):
        alexnet(widths=(1, 2, 3))
    with pytest.raises(ValueError, match=r"^hidden\[0\] is 0,"):
        odn_cnn(hidden=(0,))
    with pytest.raises(ValueError, match="size"):
        odn_cnn(size=2)
