"""What a forward pass changes in a network is changed once by two passes, and both see the same."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from widemargin.losses import CrossEntropy, WideMargin


class RunningScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(5).double())
        self.layer = nn.Linear(5, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.scale.lerp_(x.std(dim=0), 0.3)
        scores: Tensor = self.layer(x / self.scale)
        return scores


class ReplacedScale(RunningScale):
    def forward(self, x: Tensor) -> Tensor:
        self.scale = (self.scale + x.detach().std(dim=0)) / 2
        scores: Tensor = self.layer(x / self.scale)
        return scores


class OwnBatchNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.variance: Tensor
        self.register_buffer("mean", torch.zeros(5).double())
        self.register_buffer("variance", torch.ones(5).double())
        self.layer = nn.Linear(5, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(F.batch_norm(x, self.mean, self.variance, training=self.training))
        return scores


def spectral() -> nn.Module:
    torch.manual_seed(0)
    first, second = (spectral_norm(nn.Linear(5, 5)) for _ in range(2))
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(5, 3)).double()


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(16) % 3
    return x + 3 * F.one_hot(y, 5), y


@pytest.mark.parametrize("build", [RunningScale, ReplacedScale, OwnBatchNorm, spectral])
@pytest.mark.parametrize("loss", [WideMargin(strength=30.0), WideMargin(strength=30.0, share=0.5)])
def test_buffers_change_as_in_one_pass(build: Callable[[], nn.Module], loss: WideMargin) -> None:
    x, y = batch()
    torch.manual_seed(0)
    once = build()
    twice = copy.deepcopy(once)
    for _ in range(3):
        CrossEntropy()(once, x, y)
        loss(twice, x, y).mean().backward()
        expected, found = dict(once.named_buffers()), dict(twice.named_buffers())
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("build", [RunningScale, ReplacedScale, spectral])
def test_both_passes_see_the_state_of_the_first(build: Callable[[], nn.Module]) -> None:
    """With the buffers held at their new values the term is the same, up to what the step itself changes in them."""
    x, y = batch()
    network = build()
    for _ in range(2):
        held = _held(copy.deepcopy(network), x)
        values = WideMargin(strength=30.0)(network, x, y)
        exact = build is spectral
        torch.testing.assert_close(values, WideMargin(strength=30.0)(held, x, y), rtol=1e-9 if exact else 0.05, atol=0)
        assert float((values - CrossEntropy()(held, x, y)).detach().max()) > 1e-4


def _held(network: nn.Module, x: Tensor) -> nn.Module:
    """The network as it is during a pass of `x`, with no state that changes."""
    if isinstance(network, RunningScale):
        network(x)
        layer = copy.deepcopy(network.layer)
        layer.weight.data /= network.scale
        return layer
    network(x)
    return network.eval()


def test_attributes_are_those_of_one_pass() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.passes, self.hidden = nn.Linear(5, 3).double(), 0, torch.zeros(0)

        def forward(self, x: Tensor) -> Tensor:
            self.passes += 1
            self.hidden = x
            scores: Tensor = self.layer(x)
            return scores

    network, (x, y) = Counted(), batch()
    WideMargin(share=0.5)(network, x, y)
    assert network.passes == 1
    torch.testing.assert_close(network.hidden, x)
