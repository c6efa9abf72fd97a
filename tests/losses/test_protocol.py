"""Optional attributes of losses, as the rest of the package reads them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from widemargin import attacks, losses, regularizers
from widemargin.losses import protocol


def function(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def test_a_function_is_a_loss_without_any_of_them() -> None:
    assert isinstance(function, losses.Loss)
    assert protocol.fast_backward(function) is None
    assert protocol.places_of(function) is None
    assert protocol.norm_of(function) is None
    assert not protocol.needs_index(function)
    assert not protocol.is_capturable(function)
    assert protocol.innermost(function) is function


def test_a_margin_loss_has_them() -> None:
    loss = losses.MarginLoss(at=("input", "0"), p=1.0, penalty=losses.Band())
    assert isinstance(loss, losses.Loss)
    assert protocol.fast_backward(loss) == loss.backward
    assert protocol.places_of(loss) == ("input", "0")
    assert protocol.norm_of(loss) == 1.0
    assert protocol.is_capturable(loss)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (losses.CrossEntropy(), True),
        (losses.MultiClassHinge(), True),
        (losses.SoftHinge(), True),
        (losses.Target(alpha=2.0), True),
        (losses.Target(alpha=(1.0, 2.0)), False),
        (regularizers.Jacobian(weight=1.0), True),
        (regularizers.JacobianFrobenius(weight=1.0), True),
        (regularizers.WeightDecay(weight=1.0), True),
        (regularizers.ClassifierPenalty(weight=1.0), True),
        (attacks.Adversarial(), True),
        (attacks.Adversarial(loss=function), False),
        (functools.partial(function), False),
    ],
)
def test_what_may_be_captured(part: Any, expected: bool) -> None:
    assert protocol.is_capturable(part) is expected


def test_an_attack_has_a_p_of_its_own_that_is_no_norm_of_margins() -> None:
    assert protocol.norm_of(attacks.Adversarial(p=2.0)) is None
    assert protocol.places_of(attacks.Adversarial(p=2.0)) is None
    wrapped = attacks.Adversarial(loss=attacks.Adversarial(loss=losses.MarginLoss(p=1.0)), p=2.0)
    assert protocol.norm_of(wrapped) == 1.0
    assert protocol.places_of(wrapped) == ("input",)
    assert protocol.innermost(wrapped) == losses.MarginLoss(p=1.0)


@dataclass(frozen=True, kw_only=True)
class Halved(losses.MarginLoss):
    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, **extra: Any) -> Tensor:
        return 0.5 * super().__call__(model, x, y, **extra)


@dataclass(frozen=True, kw_only=True)
class Shifted(losses.MarginLoss):
    def of(self, *args: Any, **extra: Any) -> Tensor:
        return super().of(*args, **extra) + 1.0


class Forwarding:
    """Forwards whatever it lacks to another loss, whose backward is not its own."""

    def __init__(self, loss: losses.Loss) -> None:
        self.loss = loss

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return 2 * self.loss(model, x, y)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loss, name)


@pytest.mark.parametrize("loss", [Halved(), Shifted(), Forwarding(losses.MarginLoss())])
def test_another_value_does_not_inherit_the_backward(loss: Any) -> None:
    assert protocol.fast_backward(loss) is None
    assert not protocol.is_capturable(loss)


def test_a_backward_of_ones_own_counts() -> None:
    inner = losses.MarginLoss()
    loss = functools.partial(function)
    loss.backward = inner.backward  # type: ignore[attr-defined]
    assert protocol.fast_backward(loss) == inner.backward


def test_positions_are_given_to_a_loss_that_needs_them() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 2).double(), torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1])
    loss, index = losses.Target(alpha=(1.0, 2.0, 3.0)), torch.tensor([2, 0])
    assert torch.equal(protocol.values_of(loss, model, x, y, index), loss(model, x, y, index=index))
    wrapped = attacks.Adversarial(loss=loss, epsilon=0.0, bounds=None)
    assert protocol.needs_index(wrapped)
    assert torch.equal(protocol.values_of(wrapped, model, x, y, index), loss(model, x, y, index=index))
    assert torch.equal(protocol.values_of(function, model, x, y, index), function(model, x, y))


def test_margin_backward_needs_a_backward() -> None:
    with pytest.raises(TypeError, match="loss is a CrossEntropy"):
        losses.margin_backward(nn.Linear(2, 2), losses.CrossEntropy(), torch.zeros(1, 2), torch.tensor([0]))
