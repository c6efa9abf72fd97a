"""The papers' settings, and claim E17: for a linear classifier the large-margin loss is the SVM."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor, nn

from widemargin import losses


def test_large_margin_is_elsayed_on_mnist() -> None:
    loss = losses.large_margin(gamma=0.1, p=math.inf, at=("input", "fc1"))
    assert loss == losses.MarginLoss(
        penalty=losses.Hinge(gamma=0.1), p=math.inf, at=("input", "fc1"), classes="all", aggregate="max"
    )


def test_odn_is_a_band_of_the_l2_distance_at_the_input() -> None:
    assert losses.odn(r=30.0, theta=0.7) == losses.MarginLoss(penalty=losses.Band(r=30.0, theta=0.7, mu=0.1))
    assert losses.odn_hinge(gamma=2.0) == losses.MarginLoss(penalty=losses.Hinge(gamma=2.0))


@pytest.mark.parametrize(("dimensions", "samples"), [(2, 40), (10, 60)])
def test_a_linear_classifier_is_the_svm(dimensions: int, samples: int, untyped: None) -> None:
    """γ raised to the largest value whose loss can still be driven to zero gives scikit-learn's separator."""
    x, y = _separable(dimensions, samples)
    exact = SVC(kernel="linear", C=1e8, tol=1e-8).fit(x.numpy(), y.numpy())
    best, bias = torch.tensor(exact.coef_[0]), float(exact.intercept_[0])
    widest = _smallest_margin(best, bias, x, y)

    torch.manual_seed(0)
    model = nn.Linear(dimensions, 2).double()
    low, high = 0.0, float(torch.cdist(x[y == 0], x[y == 1]).min()) / 2  # no margin is wider than half the closest pair
    state = copy.deepcopy(model.state_dict())
    while high - low > 0.008 * max(low, 0.01):
        gamma = (low + high) / 2
        model.load_state_dict(state)
        if _driven_to_zero(model, x, y, gamma):
            low, state = gamma, copy.deepcopy(model.state_dict())
        else:
            high = gamma
    model.load_state_dict(state)

    w, b = (model.weight[1] - model.weight[0]).detach(), float((model.bias[1] - model.bias[0]).detach())
    assert float(w @ best / (w.norm() * best.norm())) >= 0.99
    assert _smallest_margin(w, b, x, y) >= 0.99 * widest


def _driven_to_zero(model: nn.Module, x: Tensor, y: Tensor, gamma: float, steps: int = 500) -> bool:
    loss = losses.MarginLoss(penalty=losses.Hinge(gamma=gamma), p=2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / steps) ** 2)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model, x, y).mean()
        if value.item() == 0:
            return True
        value.backward()
        optimizer.step()
        schedule.step()
    return False


def _separable(dimensions: int, samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(dimensions)
    w = torch.randn(dimensions, generator=generator, dtype=torch.float64)
    x = torch.randn(4 * samples, dimensions, generator=generator, dtype=torch.float64)
    side = x @ w / w.norm()
    x, side = x[side.abs() > 0.3][:samples], side[side.abs() > 0.3][:samples]
    return x + 0.5, (side > 0).long()


def _smallest_margin(w: Tensor, b: float, x: Tensor, y: Tensor) -> float:
    return float(((2 * y - 1) * (x @ w + b)).min() / w.norm())
