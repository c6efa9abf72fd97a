"""A shared forward pass gives the values and gradients of two."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from losses.wide_networks import CASES
from widemargin import losses, training
from widemargin.losses.shared_pass import values_and_penalties
from widemargin.regularizers import JacobianFrobenius, WeightDecay

PENALTY = JacobianFrobenius(weight=0.3, projections=None, second_order="second-point")


class Passes:
    """Counts the forward passes of a network."""

    def __init__(self, network: nn.Module) -> None:
        self.count = 0
        network.register_forward_hook(self.add)

    def add(self, *_: object) -> None:
        self.count += 1


def gradients(network: nn.Module, value: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(network.parameters())))


@pytest.mark.parametrize("name", ["mlp", "batch norm"])
def test_values_and_gradients_are_those_of_separate_passes(name: str) -> None:
    case = CASES[name]
    network, (x, y) = case.network(), case.batch()
    classes = network(x).shape[1]
    loss, decay = losses.CrossEntropy(), WeightDecay(weight=0.1)
    expected = loss(network, x, y), decay(network, x, y), PENALTY(network, x, y)
    passes = Passes(network)
    values, penalties = values_and_penalties(loss, (decay, PENALTY), network, x, y)
    assert passes.count == 1 + classes  # a moved pass for every score
    for found, one in zip((values, *penalties), expected, strict=True):
        torch.testing.assert_close(found, one, rtol=1e-8, atol=1e-10)
    joint = gradients(network, values.mean() + sum(one.mean() for one in penalties))
    apart = gradients(network, sum((one.mean() for one in expected), x.new_zeros(())))
    for one, other in zip(joint, apart):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_other_losses_and_exact_regularizers_take_their_own_passes() -> None:
    case = CASES["mlp"]
    network, (x, y) = case.network(), case.batch()
    exact = JacobianFrobenius(weight=0.3, projections=None)
    for loss, penalty in ((losses.WideMargin(), PENALTY), (losses.CrossEntropy(), exact)):
        values, (found,) = values_and_penalties(loss, (penalty,), network, x, y)
        torch.testing.assert_close(values, loss(network, x, y))
        torch.testing.assert_close(found, penalty(network, x, y))


def test_probabilities_are_refused() -> None:
    network, x = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1)), torch.randn(8, 4)
    with pytest.raises(ValueError, match="probabilities"):
        values_and_penalties(losses.CrossEntropy(), (PENALTY,), network, x, torch.arange(8) % 3)


def test_fit_takes_one_pass_for_both() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    x, y, passes = torch.randn(8, 4), torch.arange(8) % 3, Passes(network)
    penalty = JacobianFrobenius(second_order="second-point")
    training.fit(
        network,
        (x, y),
        loss=losses.CrossEntropy(),
        regularizers=[penalty],
        epochs=1,
        callbacks=[training.Measure(every=None), training.ProgressBar(show=False)],
        devices=training.Devices.of("cpu"),
    )
    assert passes.count == 2
    assert int(network.get_buffer("1.num_batches_tracked")) == 1
