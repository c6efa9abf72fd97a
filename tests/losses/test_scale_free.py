from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from laws import batch, smooth_network
from widemargin import places
from widemargin.losses import Band, Hinge, MarginLoss


def gradient_at_the_scores(loss: MarginLoss, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with places.watch(network, loss.at) as at:
        scores = network(x)
    (gradient,) = torch.autograd.grad(loss.of(scores, y, at=at).sum(), scores)
    return gradient


@pytest.mark.parametrize("penalty", [Hinge(gamma=1e9), Band(r=1e9, theta=1e8, mu=0.1)], ids=repr)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_gradient_at_the_scores_has_about_unit_length_whatever_the_slope(penalty: Hinge, scale: float) -> None:
    """A steep or flat first layer changes ‖∇f‖ a millionfold, and the printed gradient with it, but not this one."""
    network, (x, y) = smooth_network(), batch()
    loss = MarginLoss(penalty=penalty, at=("input", "tanh1"))
    gradient = gradient_at_the_scores(loss, network, x, y)
    stretched = nn.Sequential(Scale(scale), *network.children())
    names = MarginLoss(penalty=penalty, at=("input", "2"))
    torch.testing.assert_close(gradient_at_the_scores(names, stretched, x / scale, y), gradient, rtol=1e-6, atol=1e-9)
    assert 0.3 < float(gradient.norm(dim=1).mean()) < 1.5
    assert float(gradient.norm(dim=1).max()) < 10


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_the_gradient_at_the_scores_is_a_multiple_of_the_label_minus_the_strongest_other() -> None:
    network, (x, y) = smooth_network(), batch()
    gradient = gradient_at_the_scores(MarginLoss(at=("input", "tanh1")), network, x, y)
    scores = network(x).detach()
    other = scores.scatter(1, y[:, None], -torch.inf).argmax(1)
    direction = torch.zeros_like(scores)
    direction[torch.arange(12), y] = 1.0
    direction[torch.arange(12), other] = -1.0
    along = (gradient * direction).sum(1, keepdim=True) / 2
    torch.testing.assert_close(gradient, along * direction)
    assert bool(gradient.any())


@pytest.mark.parametrize("size", [1, 2, 7])
def test_tiny_batches_keep_their_gradient(size: int) -> None:
    """Below 8 samples the difference is not rescaled: to project out the scale of one sample leaves nothing."""
    network, (x, y) = smooth_network(), batch(size)
    loss = MarginLoss(penalty=Hinge(gamma=10.0))
    gradient = gradient_at_the_scores(loss, network, x, y)
    assert float(gradient.norm(dim=1).min()) > 0.01


def test_a_last_layer_of_zeros_has_a_finite_loss_and_learns() -> None:
    network, (x, y) = smooth_network(), batch()
    nn.init.zeros_(network.get_submodule("output").weight)  # type: ignore[arg-type]
    nn.init.zeros_(network.get_submodule("output").bias)  # type: ignore[arg-type]
    loss = MarginLoss(at=("input", "tanh1", "output"))
    value = loss(network, x, y)
    value.mean().backward()
    assert bool(value.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None)
    gradient = network.get_submodule("output").weight.grad
    assert isinstance(gradient, Tensor)
    assert float(gradient.norm()) > 1e-3


def test_one_flat_sample_does_not_take_the_whole_gradient() -> None:
    """A sample whose slope is a millionth of the others' has a printed gradient a million times theirs."""
    torch.manual_seed(0)
    network, (x, y) = smooth_network(), batch()
    x = torch.cat([x[:-1], 30 * torch.ones(1, 6, dtype=x.dtype)])  # tanh saturated: an almost flat place
    printed = gradient_at_the_scores(MarginLoss(stabilize=None, penalty=Hinge(gamma=1e9)), network, x, y).norm(dim=1)
    free = gradient_at_the_scores(MarginLoss(penalty=Hinge(gamma=1e9)), network, x, y).norm(dim=1)
    assert float(printed[-1] / printed[:-1].median()) > 100
    assert float(free[-1] / free[:-1].median()) < 30


def test_second_order_needs_no_projection_and_gets_none() -> None:
    """With its denominator in the graph a margin does not change with the scale of the last layer."""
    network, (x, y) = smooth_network(), batch()
    loss = MarginLoss(second_order=True, penalty=Hinge(gamma=10.0))
    parameters = list(network.get_submodule("output").parameters())
    gradients = torch.autograd.grad(loss(network, x, y).mean(), parameters)
    along = sum(float((g * p).sum().detach()) for g, p in zip(gradients, parameters, strict=True))
    assert abs(along) < 1e-9
