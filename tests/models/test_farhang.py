from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from widemargin.models.farhang import ScaledReLU, farhang_cnn, farhang_mlp


def weights(network: nn.Module) -> list[torch.Tensor]:
    return [weight.detach() for weight in network.parameters()]


@pytest.mark.parametrize(("depth", "outputs"), [(1, 10), (2, 10), (5, 1), (7, 1)])
def test_depth_counts_weight_matrices(depth: int, outputs: int) -> None:
    network = farhang_mlp(inputs=12, width=8, depth=depth, outputs=outputs)
    sizes = [12, *[8] * (depth - 1), outputs]
    assert [tuple(weight.shape) for weight in weights(network)] == [(b, a) for a, b in pairwise(sizes)]
    assert sum(isinstance(layer, ScaledReLU) for layer in network) == depth - 1
    assert network(torch.zeros(3, 12)).shape == (3, outputs)


def test_the_network_of_figure_1_has_the_papers_size() -> None:
    with torch.device("meta"):
        network = farhang_mlp()
    assert sum(weight.numel() for weight in network.parameters()) == 784 * 5000 + 3 * 5000**2 + 5000 * 10


def test_the_mlp_by_hand() -> None:
    network = farhang_mlp(inputs=6, width=5, depth=3, outputs=4).double()
    x = torch.randn(3, 1, 2, 3, dtype=torch.float64)
    first, second, third = weights(network)
    hidden = math.sqrt(2) * (x.reshape(3, 6) @ first.T).clamp(min=0)
    hidden = math.sqrt(2) * (hidden @ second.T).clamp(min=0)
    torch.testing.assert_close(network(x), hidden @ third.T)


@pytest.mark.parametrize("channels", [3, 5])
def test_the_cnn_of_appendix_a3(channels: int) -> None:
    with torch.device("meta"):
        network = farhang_cnn(channels=channels)
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 1)
    shapes = [tuple(weight.shape) for weight in weights(network)]
    convolutions = [(channels, 3, 3, 3), (channels, channels, 3, 3), (channels, channels, 3, 3)]
    assert shapes == [*convolutions, (500, channels * 32 * 32), (500, 500), (1, 500)]
    strided = farhang_cnn(size=8, channels=2, width=3, stride=2)
    assert strided(torch.zeros(2, 3, 8, 8)).shape == (2, 1)


@pytest.mark.parametrize("sigma", [1.0, 0.3])
def test_weights_start_as_the_prior_of_the_gaussian_process(sigma: float) -> None:
    """Mean 0, variance σ²/fan-in and kurtosis 3, each within five standard errors."""
    torch.manual_seed(0)
    mlp = weights(farhang_mlp(inputs=150, width=300, depth=3, sigma=sigma))[:2]
    cnn = weights(farhang_cnn(size=4, channels=64, width=90, sigma=sigma))[1:4]
    for weight in mlp + cnn:
        z = weight.flatten().double() * math.sqrt(weight[0].numel()) / sigma
        error = 5 / math.sqrt(z.numel())
        assert abs(z.mean()) < error
        assert abs(z.square().mean() - 1) < error * math.sqrt(2)
        assert abs(z.pow(4).mean() - 3) < error * math.sqrt(96)


def test_scaled_relu_keeps_the_second_moment() -> None:
    """E[φ(t)²] = E[t²] for every symmetric t, since (φ(t)² + φ(−t)²)/2 = t²; with a plain ReLU it is half of it."""
    t = torch.randn(1000, dtype=torch.float64)
    phi = ScaledReLU()
    torch.testing.assert_close((phi(t).square() + phi(-t).square()) / 2, t.square())
    plain = ScaledReLU(1.0)
    torch.testing.assert_close((plain(t).square() + plain(-t).square()) / 2, t.square() / 2)


def test_a_wide_network_keeps_the_norm_and_has_the_arccosine_kernel() -> None:
    """At inputs of norm √d_0 hidden layers have mean square 1 and correlation h∘⋯∘h(xᵀx′/d_0)."""
    torch.manual_seed(0)
    width = 3000
    network = farhang_mlp(inputs=20, width=width, depth=4)
    x = torch.randn(2, 20)
    x = x * math.sqrt(20) / x.norm(dim=1, keepdim=True)
    t = float(x[0] @ x[1] / 20)
    hidden = x
    for name, layer in network.named_children():
        hidden = layer(hidden)
        if name.startswith("relu"):
            t = (math.sqrt(1 - t * t) + t * (math.pi - math.acos(t))) / math.pi
            gram = hidden @ hidden.T / width
            torch.testing.assert_close(gram, torch.tensor([[1, t], [t, 1]]), atol=0.15, rtol=0)
    assert hidden.shape == (2, 10)


@pytest.mark.parametrize("build", [farhang_mlp, farhang_cnn])
def test_networks_are_positively_homogeneous(build: object) -> None:
    """f(cx) = c·f(x), and scaling each of the L weights by c scales f by c^L."""
    if build is farhang_mlp:
        network, x = farhang_mlp(inputs=9, width=12, depth=4, outputs=4), torch.randn(5, 9, dtype=torch.float64)
    else:
        network, x = farhang_cnn(size=6, channels=3, width=7), torch.randn(5, 3, 6, 6, dtype=torch.float64)
    network.double()
    scores = network(x).detach()
    assert scores.abs().min() > 0
    torch.testing.assert_close(network(3.7 * x), 3.7 * scores, rtol=1e-12, atol=0)
    for weight in network.parameters():
        weight.data *= 1.3
    torch.testing.assert_close(network(x), 1.3 ** len(weights(network)) * scores, rtol=1e-12, atol=0)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"^depth is 0,"):
        farhang_mlp(depth=0)
    with pytest.raises(ValueError, match=r"^sigma is 0.0,"):
        farhang_mlp(width=2, sigma=0.0)
    with pytest.raises(ValueError, match=r"^kernel is 2,"):
        farhang_cnn(kernel=2)
    with pytest.raises(ValueError, match=r"^scale is -1.0,"):
        ScaledReLU(-1.0)
