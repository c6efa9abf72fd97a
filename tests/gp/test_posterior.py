from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel, StationaryKernelMixin
from torch import Tensor

import oracles_gp
from widemargin import data, gp

posterior_module = importlib.import_module("widemargin.gp.posterior")  # gp.posterior is its function


class Arccosine(StationaryKernelMixin, Kernel):  # type: ignore[misc]
    """σ^{2L}·gp.kernel as scikit-learn wants it; stationary in that its diagonal is constant."""

    def __init__(self, depth: int = 3, sigma: float = 1.0) -> None:
        self.depth, self.sigma = depth, sigma

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        x = torch.from_numpy(X)
        value = gp.kernel(x, x if Y is None else torch.from_numpy(Y), self.depth)
        return self.sigma ** (2 * self.depth) * value.numpy()

    def diag(self, X: Any) -> Any:
        return np.full(len(X), self.sigma ** (2 * self.depth))


def digits(n: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """Even against odd digits, on the sphere."""
    loaded = data.load("digits")
    train, test = (data.to_sphere(part.x.double().flatten(1)) for part in (loaded.train, loaded.test))
    return train[:n], torch.where(loaded.train.y[:n] % 2 == 0, 1.0, -1.0).double(), test[:m]


@pytest.mark.parametrize(
    ("depth", "margin", "sigma", "jitter"), [(2, 1.0, 1.0, 0.0), (5, 0.3, 1.7, 1e-3), (3, 20.0, 0.5, 0.0)]
)
def test_against_scikit_learn(depth: int, margin: float, sigma: float, jitter: float) -> None:
    train_x, train_y, test_x = digits(200, 60)
    found = gp.posterior(train_x, train_y, test_x, depth, margin, sigma, jitter=jitter)
    noise = max(jitter, 1e-15) * sigma ** (2 * depth)  # scikit-learn takes no 0
    outside = GaussianProcessRegressor(kernel=Arccosine(depth, sigma), alpha=noise, optimizer=None)
    outside.fit(train_x.numpy(), margin * train_y.numpy())
    mean, covariance = (torch.from_numpy(value) for value in outside.predict(test_x.numpy(), return_cov=True))
    torch.testing.assert_close(found.mean, mean, rtol=1e-9, atol=1e-10 * margin)
    torch.testing.assert_close(found.covariance, covariance, rtol=1e-9, atol=1e-11 * sigma ** (2 * depth))
    torch.testing.assert_close(found.variance, covariance.diagonal(), rtol=1e-9, atol=1e-11 * sigma ** (2 * depth))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_against_many_digits(depth: int) -> None:
    train_x, test_x = oracles_gp.sphere(6, 8, seed=0), oracles_gp.sphere(3, 8, seed=1)
    train_y = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    c1, c2 = oracles_gp.posterior(train_x, train_y, test_x, depth)
    found = gp.posterior(train_x, train_y, test_x, depth)
    torch.testing.assert_close(found.c1, c1, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.c2, c2, rtol=1e-11, atol=1e-11)


def test_one_training_point_by_hand() -> None:
    """Mean γ·k·y and variance σ^{2L}·(1 − k²), with k = h(cos 60°)."""
    k = (math.sqrt(3) / 2 + 0.5 * 2 * math.pi / 3) / math.pi
    x = oracles_gp.circle(0, 60)
    found = gp.posterior(x[:1], torch.tensor([-1.0]), x[1:], 2, margin=3.0, sigma=2.0)
    assert float(found.mean) == pytest.approx(-3.0 * k)
    assert float(found.variance) == pytest.approx(2.0**4 * (1 - k * k))
    assert float(found.covariance) == pytest.approx(2.0**4 * (1 - k * k))
    assert found.normalized_margin == 3.0 / 2.0**2
    assert found.relative_spread == pytest.approx(math.sqrt(float(found.variance)) / abs(float(found.mean)))


def test_interpolates_and_knows_it() -> None:
    train_x, train_y, _ = digits(120, 1)
    found = gp.posterior(train_x, train_y, train_x, 4, margin=7.0)
    torch.testing.assert_close(found.mean, 7.0 * train_y, rtol=0, atol=1e-10)
    assert found.c2 is not None
    assert found.c2.abs().max() < 1e-10
    assert found.c2_diagonal.min() >= 0


@pytest.mark.parametrize("depth", [2, 3, 7])
def test_variance_is_between_zero_and_the_prior(depth: int) -> None:
    """Of points near and far from the training points."""
    train_x, train_y, test_x = digits(300, 100)
    near = data.to_sphere(train_x[:50] + 1e-9 * test_x[:50])
    found = gp.posterior(train_x, train_y, torch.cat([test_x, near, train_x[:50], -train_x[:20]]), depth)
    assert found.c2_diagonal.min() >= 0
    assert found.c2_diagonal.max() <= 1
    assert found.c2 is not None
    torch.testing.assert_close(found.c2, found.c2.T, rtol=0, atol=1e-12)
    assert float(torch.linalg.eigvalsh(found.c2)[0]) > -1e-10
    torch.testing.assert_close(found.c2.diagonal(), found.c2_diagonal, rtol=0, atol=1e-11)


def test_more_data_less_variance() -> None:
    train_x, train_y, test_x = digits(100, 80)
    few, many = (gp.posterior(train_x[:n], train_y[:n], test_x, 3) for n in (40, 100))
    assert (many.c2_diagonal <= few.c2_diagonal + 1e-11).all()


def test_variances_alone_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    train_x, train_y, test_x = digits(50, 23)
    whole = gp.posterior(train_x, train_y, test_x, 3)
    monkeypatch.setattr(posterior_module, "TEST_POINTS", 5)  # the last part is shorter
    parts = gp.posterior(train_x, train_y, test_x, 3, covariance=False)
    torch.testing.assert_close(parts.c1, whole.c1, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(parts.variance, whole.variance, rtol=1e-11, atol=1e-11)
    assert parts.c2 is None
    with pytest.raises(ValueError, match="covariance is False"):
        _ = parts.covariance


def test_another_margin_and_scale_share_the_work() -> None:
    train_x, train_y, test_x = digits(50, 10)
    one = gp.posterior(train_x, train_y, test_x, 3)
    _ = one.c2_root
    other = one.at(margin=4.0, sigma=1.5)
    again = gp.posterior(train_x, train_y, test_x, 3, 4.0, 1.5)
    torch.testing.assert_close(other.mean, again.mean, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(other.covariance, again.covariance, rtol=1e-11, atol=1e-11)
    assert other.c2 is one.c2
    assert vars(other)["c2_root"] is one.c2_root
    assert "c2_root" not in vars(again)
    assert one.at(sigma=2.0).margin == 1.0
    with pytest.raises(ValueError, match=r"margin is -1\.0"):
        one.at(margin=-1.0)


def test_conflicting_duplicates_with_jitter() -> None:
    """Two labels of one point: jitter makes them two noisy observations, whose mean is 0 there."""
    x = oracles_gp.sphere(3, 5, seed=0)
    train = torch.cat([x, x[:1]])
    found = gp.posterior(train, torch.tensor([1.0, 1.0, -1.0, -1.0]), x[:1], 3, jitter=1e-6)
    assert float(found.mean) == pytest.approx(0.0, abs=1e-6)
    assert float(found.variance) == pytest.approx(0.5e-6, rel=1e-3)


X, Y = oracles_gp.sphere(3, 4, seed=0), torch.tensor([1.0, -1.0, 1.0])


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"train_x": 2 * X}, ValueError, "train_x has norm 4 at index 0"),
        ({"test_x": 2 * X}, ValueError, "test_x has norm 4"),
        ({"test_x": oracles_gp.sphere(2, 5, seed=0)}, ValueError, "test_x has d_0 = 5"),
        ({"train_y": Y[:2]}, ValueError, r"train_y has shape \[2\]"),
        ({"train_y": 2 * Y}, ValueError, "train_y has 2 at index 0"),
        ({"train_y": Y.long()}, TypeError, r"train_y has dtype torch\.int64"),
        ({"train_y": [1.0, 1.0, 1.0]}, TypeError, "train_y is a list"),
        ({"train_x": X[[0, 1, 0]]}, ValueError, r"train_x .* 0 and 2"),
        ({"depth": 0}, ValueError, "depth is 0"),
        ({"margin": 0.0}, ValueError, r"margin is 0\.0"),
        ({"margin": "1"}, TypeError, "margin is '1'"),
        ({"sigma": math.inf}, ValueError, "sigma is inf"),
        ({"sigma": 1e60}, ValueError, r"sigma is 1e\+60"),
        ({"sigma": 1e-60}, ValueError, "sigma is 1e-60"),
        ({"jitter": -1e-6}, ValueError, "jitter is -1e-06"),
    ],
)
def test_errors(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    arguments: dict[str, Any] = {"train_x": X, "train_y": Y, "test_x": X, "depth": 3, **changes}
    with pytest.raises(error, match=words):
        gp.posterior(**arguments)


def test_a_negative_variance_beyond_rounding_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"test_x .*-0\.001.* 1"):
        posterior_module._check_variances(torch.tensor([0.1, -1e-3], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"test_x .*nan"):
        posterior_module._check_variances(torch.tensor([0.1, math.nan], dtype=torch.float64))
