"""The papers' settings, and claim E17: for a linear classifier the large-margin loss is the SVM."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor, nn

from widemargin import losses
from widemargin.studies.tasks import linear_svm


def test_large_margin_is_elsayed_on_mnist() -> None:
    loss = losses.large_margin(gamma=0.1, p=math.inf, at=("input", "fc1"))
    assert loss == losses.MarginLoss(
        penalty=losses.Hinge(gamma=0.1), p=math.inf, at=("input", "fc1"), classes="all", aggregate="max"
    )


def test_odn_is_a_band_of_the_l2_distance_at_the_input() -> None:
    assert losses.odn(r=30.0, theta=0.7) == losses.MarginLoss(penalty=losses.Band(r=30.0, theta=0.7, mu=0.1))
    assert losses.odn_hinge(gamma=2.0) == losses.MarginLoss(penalty=losses.Hinge(gamma=2.0))


@pytest.mark.parametrize(("r", "stabilize"), [(2.0, "scale-free"), (2.0, None), (5.0, "scale-free")])
def test_odn_is_a_hinge_until_a_margin_exceeds_its_upper_limit(
    r: float, stabilize: Literal["scale-free"] | None
) -> None:
    odn = losses.odn(r=r, stabilize=stabilize)
    hinge = losses.MarginLoss(penalty=losses.Hinge(gamma=r - 1), stabilize=stabilize)
    network = nn.Linear(1, 2, bias=False).double()
    network.weight.data = torch.tensor([[1.0], [0.0]], dtype=torch.float64)  # the distance of class 0 is x
    x, y = torch.linspace(-2, r + 1, 12, dtype=torch.float64)[:, None], torch.zeros(12, dtype=torch.long)
    torch.testing.assert_close(odn(network, x, y), hinge(network, x, y))
    x[3] = r + 2
    beyond = odn(network, x, y) > hinge(network, x, y)
    assert beyond.nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize(("dimensions", "samples"), [(2, 40), (10, 60)])
def test_a_linear_classifier_is_the_svm(dimensions: int, samples: int, untyped: None) -> None:
    """γ raised to the largest value whose loss can still be driven to zero gives scikit-learn's separator."""
    x, y = _separable(dimensions, samples)
    exact = SVC(kernel="linear", C=1e8, tol=1e-8).fit(x.numpy(), y.numpy())
    best, bias = torch.tensor(exact.coef_[0]), float(exact.intercept_[0])
    widest = _smallest_margin(best, bias, x, y)

    loss = {"name": "large-margin", "p": 2.0, "classes": 1}
    w, b = linear_svm.separator(x, y, {"loss": loss, "lr": 0.3, "steps": 150, "close": 0.008}, seed=0)
    assert float(w @ best / (w.norm() * best.norm())) >= 0.99
    assert _smallest_margin(w, b, x, y) >= 0.99 * widest


def _separable(dimensions: int, samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(dimensions)
    w = torch.randn(dimensions, generator=generator, dtype=torch.float64)
    x = torch.randn(4 * samples, dimensions, generator=generator, dtype=torch.float64)
    side = x @ w / w.norm()
    x, side = x[side.abs() > 0.3][:samples], side[side.abs() > 0.3][:samples]
    return x + 0.5, (side > 0).long()


def _smallest_margin(w: Tensor, b: float, x: Tensor, y: Tensor) -> float:
    return float(((2 * y - 1) * (x @ w + b)).min() / w.norm())
