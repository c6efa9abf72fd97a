"""Every loss, wrapper and regularizer has a value under `torch.no_grad` and `torch.inference_mode`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import attacks, losses, regularizers
from widemargin.losses.classification import WeightedSum
from widemargin.losses.wrappers import Augmented, WithAuxiliary

EVERY: list[Callable[..., Tensor]] = [
    losses.WideMargin(),
    losses.WideMargin(at=("1",), p=float("inf"), share=0.5),
    losses.WideMargin(strength=0.0),
    losses.MarginLoss(),
    losses.MarginLoss(statistics="frozen", at=("input", "1")),
    losses.MarginLoss(second_order=True),
    losses.MarginLoss(second_order="second-point"),
    losses.MarginLoss(probes=2, classes="all", statistics="frozen"),
    losses.large_margin(gamma=1.0, stabilize=None),
    losses.odn(),
    losses.odn_hinge(),
    losses.CrossEntropy(label_smoothing=0.1),
    losses.GeneralizedCrossEntropy(),
    losses.MultiClassHinge(kind="weston-watkins"),
    losses.SoftHinge(),
    losses.Target(alpha=2.0),
    WeightedSum(parts=((1.0, losses.CrossEntropy()), (0.1, losses.SoftHinge()))),
    losses.as_loss(F.cross_entropy),
    losses.Weighted(loss=losses.MarginLoss(), classes=(1.0, 2.0, 3.0)),
    losses.mean(losses.WideMargin()),
    losses.Criterion(losses.MarginLoss(), reduction="none"),
    Augmented(loss=losses.WideMargin(), crop=1),
    WithAuxiliary(loss=losses.MarginLoss()),
    attacks.Adversarial(loss=losses.MarginLoss(), epsilon=0.1, steps=2),
    regularizers.Jacobian(),
    regularizers.Jacobian(form="pairwise", second_order="second-point"),
    regularizers.JacobianFrobenius(),
    regularizers.JacobianFrobenius(second_order="second-point", projections=None),
    regularizers.WeightDecay(weight=0.1),
    regularizers.ClassifierPenalty(weight=0.1),
]


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("loss", EVERY, ids=repr)
def test_the_value_without_gradients_is_the_value(
    loss: Callable[..., Tensor], off: Callable[[], AbstractContextManager[None]]
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )
    x, y = torch.rand(12, 1, 6, 6), torch.arange(12) % 3
    torch.manual_seed(1)
    expected = loss(copy.deepcopy(model), x, y)  # batch norm counts the batch
    assert expected.requires_grad
    torch.manual_seed(1)
    with off():
        found = loss(model, x * 1.0, y + 0)  # in inference mode these are inference tensors
        assert not found.requires_grad
        assert float(found.mean()) == pytest.approx(float(expected.mean()), rel=1e-5)
    torch.testing.assert_close(found.clone(), expected.detach(), rtol=1e-5, atol=1e-6)
    assert all(parameter.grad is None for parameter in model.parameters())
