from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import oracles_gp
from widemargin import data, gp, models


def small_posterior(margin: float = 0.5, sigma: float = 1.2) -> gp.Posterior:
    train_x, test_x = oracles_gp.sphere(8, 6, seed=0), oracles_gp.sphere(5, 6, seed=1)
    return gp.posterior(train_x, torch.tensor([1.0, -1.0] * 4), test_x, 3, margin, sigma)


@pytest.mark.parametrize("members", [1, 4])
def test_draws_have_the_moments_of_equation_3(members: int) -> None:
    posterior = small_posterior()
    draws = gp.ensemble(posterior, members, seed=0, draws=20_000)
    assert draws.shape == (20_000, 5)
    deviation = (posterior.variance / members).sqrt()
    assert ((draws.mean(0) - posterior.mean) / deviation).abs().max() < 5 / math.sqrt(20_000)
    scaled = (draws - posterior.mean) / deviation
    correlation = posterior.covariance / members / torch.outer(deviation, deviation)
    torch.testing.assert_close(scaled.T @ scaled / 20_000, correlation, rtol=0, atol=5 * math.sqrt(2 / 20_000))
    assert float(scaled.pow(4).mean()) == pytest.approx(3.0, rel=0.03)  # Gaussian, not only of these moments


def test_an_ensemble_is_the_average_of_draws() -> None:
    """The average of 4 single draws has the distribution of a draw of 4 members: the same covariance."""
    posterior = small_posterior()
    averages = gp.ensemble(posterior, 1, seed=1, draws=80_000).view(20_000, 4, 5).mean(1)
    direct = gp.ensemble(posterior, 4, seed=2, draws=20_000)
    torch.testing.assert_close(averages.T.cov(), direct.T.cov(), rtol=0.05, atol=0.05 * float(direct.var(0).max()))


def test_seeds_fix_the_noise() -> None:
    posterior = small_posterior()
    one = gp.ensemble(posterior, 1, seed=3, draws=2)
    assert torch.equal(one, gp.ensemble(posterior, 1, seed=3, draws=2))
    assert not torch.equal(one, gp.ensemble(posterior, 1, seed=4, draws=2))
    nine = gp.ensemble(posterior.at(margin=2.0), 9, seed=3, draws=2)
    torch.testing.assert_close(3 * (nine - 4 * posterior.mean), one - posterior.mean)


def test_draws_where_the_covariance_is_singular() -> None:
    """A test point given twice is drawn twice alike; a training point is its label."""
    train_x, test_x = oracles_gp.sphere(8, 6, seed=0), oracles_gp.sphere(5, 6, seed=1)
    points = torch.cat([test_x, test_x, train_x])
    train_y = torch.tensor([1.0, -1.0] * 4).double()
    posterior = gp.posterior(train_x, train_y, points, 3)
    assert posterior.c2 is not None
    torch.testing.assert_close(posterior.c2_root @ posterior.c2_root.T, posterior.c2, rtol=0, atol=1e-10)
    draws = gp.ensemble(posterior, 1, seed=0, draws=3)
    torch.testing.assert_close(draws[:, :5], draws[:, 5:10], rtol=0, atol=1e-6)
    torch.testing.assert_close(draws[:, 10:], train_y.expand(3, 8), rtol=0, atol=1e-6)


@pytest.mark.parametrize("members", [1, 3, 16])
def test_expected_accuracy_is_that_of_draws(members: int) -> None:
    posterior = small_posterior(margin=0.8)
    labels = torch.tensor([1.0, 1.0, -1.0, 1.0, -1.0])
    measured = float((gp.ensemble(posterior, members, seed=5, draws=50_000) * labels > 0).double().mean())
    assert gp.expected_accuracy(posterior, labels, members) == pytest.approx(measured, abs=5 * 0.5 / math.sqrt(50_000))


def test_expected_accuracy_at_training_points_is_whole() -> None:
    x, y = oracles_gp.sphere(6, 9, seed=0), torch.tensor([1.0, -1.0] * 3)
    posterior = gp.posterior(x, y, x, 1)
    assert gp.expected_accuracy(posterior, y, 1) == 1.0
    assert gp.expected_accuracy(posterior, -y, 1) == 0.0
    mean, none = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    certain = gp.Posterior(c1=mean, c2_diagonal=none, c2=None, depth=1, margin=1.0, sigma=1.0)
    assert gp.expected_accuracy(certain, torch.ones(2), 1) == 0.5  # a mean of 0 is wrong


def test_finite_ensemble_by_hand() -> None:
    predictions = torch.tensor([[1.0, -2.0], [3.0, 1.0], [-5.0, 1.0], [1.0, 4.0], [9.0, 9.0]])
    labels = torch.tensor([1.0, 1.0])
    found = gp.finite_ensemble(predictions, labels, sizes=[1, 2, 4])
    torch.testing.assert_close(found.mean, torch.tensor([1.8, 2.6], dtype=torch.float64))
    torch.testing.assert_close(found.spread, predictions.double().var(0).sqrt())
    assert found.accuracies[1] == pytest.approx(0.8)  # 8 of 10
    assert found.accuracies[2] == pytest.approx(0.5)  # averages (2, -0.5) and (-2, 2.5); the fifth is left out
    assert found.accuracies[4] == pytest.approx(0.5)  # (0, 1): 0 is wrong
    expected = math.sqrt(float(found.spread.square().sum() / found.mean.square().sum()))
    assert found.relative_spread == pytest.approx(expected)
    assert list(gp.finite_ensemble(predictions, labels).accuracies) == [1, 2, 4]
    assert gp.finite_ensemble(predictions).accuracies == {}
    alike = gp.finite_ensemble(predictions.unsqueeze(2), labels, sizes=[1, 2, 4])  # [members, n, 1], as networks give
    assert alike.accuracies == found.accuracies
    assert torch.equal(alike.mean, found.mean)


def test_finite_ensemble_of_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    predictions = torch.randn(6, 40, 3, generator=generator)
    labels = torch.randint(3, (40,), generator=generator)
    found = gp.finite_ensemble(predictions, labels, sizes=[1, 3])
    for size in (1, 3):
        groups = [predictions[i : i + size].mean(0).argmax(1) == labels for i in range(0, 6, size)]
        assert found.accuracies[size] == pytest.approx(float(torch.stack(groups).double().mean()))
    assert found.mean.shape == found.spread.shape == (40, 3)
    assert gp.finite_ensemble(torch.zeros(2, 40, 3), labels).accuracies[1] == 0.0  # no largest score


def test_members_of_the_gp_are_a_finite_ensemble() -> None:
    """Many draws, averaged: mean and spread come back."""
    posterior = small_posterior()
    found = gp.finite_ensemble(gp.ensemble(posterior, 1, seed=0, draws=20_000))
    torch.testing.assert_close(found.spread.square(), posterior.variance, rtol=0.05, atol=0)
    assert found.relative_spread == pytest.approx(posterior.relative_spread, rel=0.05)


def test_networks_and_gp_order_alike() -> None:
    """Fig. 6 at smoke scale: averaging small margins, or one large margin; §7.3: large margins collapse."""
    loaded = data.load("digits")
    train_x, test_x = (data.to_sphere(part.x.flatten(1)) for part in (loaded.train, loaded.test))
    train_y, test_y = (torch.where(part.y % 2 == 0, 1.0, -1.0) for part in (loaded.train, loaded.test))
    train_x, train_y = train_x[:40], train_y[:40]
    curves, spreads = {}, {}
    for margin in (0.1, 1.0):
        networks = gp.finite_ensemble(trained(train_x, margin * train_y, test_x), test_y, sizes=[1, 8])
        model = gp.posterior(train_x, train_y, test_x, 3, margin)
        curves[margin] = [networks.accuracies, {m: gp.expected_accuracy(model, test_y, m) for m in (1, 8)}]
        spreads[margin] = [networks.relative_spread, model.relative_spread]
    for kind in range(2):
        small, large = curves[0.1][kind], curves[1.0][kind]
        assert small[1] + 0.1 < small[8]
        assert small[8] < large[1] + 0.05
        assert abs(large[8] - large[1]) < 0.05
        assert spreads[0.1][kind] > 1.0 > 0.5 > spreads[1.0][kind]


def trained(x: Tensor, targets: Tensor, test_x: Tensor, members: int = 8, width: int = 96, steps: int = 120) -> Tensor:
    """Recipe 1 with Adam: outputs at `test_x` of MLPs of depth 3 trained to these outputs, Frobenius norms √d_l."""
    torch.manual_seed(0)
    networks = [models.build("farhang-mlp", inputs=64, width=width, depth=3, outputs=1) for _ in range(members)]
    stacked = zip(*(network.parameters() for network in networks), strict=True)
    weights = [torch.stack([w.detach() for w in layer]).requires_grad_() for layer in stacked]
    scale = float(targets.abs().max())

    def outputs(x: Tensor) -> Tensor:
        for weight in weights[:-1]:
            x = math.sqrt(2) * (x @ weight.mT).relu()
        return (x @ weights[-1].mT).squeeze(2)

    optimizer = torch.optim.Adam(weights, lr=0.004)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.004 * (1 - step / steps)
        optimizer.zero_grad()
        ((outputs(x) - targets) / scale).square().mean(1).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for weight in weights:
                weight.mul_(math.sqrt(weight.shape[1]) / weight.norm(dim=(1, 2), keepdim=True))
    with torch.no_grad():
        assert float(((outputs(x) - targets) / scale).square().mean()) < 0.05  # the margins are those asked for
        return outputs(test_x)


P, ONES = small_posterior(), torch.ones(4, 3)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: gp.ensemble(P, 0, seed=0), ValueError, "members is 0"),
        (lambda: gp.ensemble(P, 1, seed=0, draws=0), ValueError, "draws is 0"),
        (lambda: gp.ensemble(P, 1, seed=-1), ValueError, "seed is -1"),
        (lambda: gp.ensemble(5, 1, seed=0), TypeError, "posterior is 5"),  # type: ignore[arg-type]
        (lambda: gp.expected_accuracy(P, torch.ones(4), 1), ValueError, r"y has shape \[4\]"),
        (lambda: gp.expected_accuracy(P, torch.ones(5), 0), ValueError, "members is 0"),
        (lambda: gp.finite_ensemble(ONES[0]), ValueError, r"predictions has shape \[3\]"),
        (lambda: gp.finite_ensemble(ONES[:1]), ValueError, r"predictions has shape \[1, 3\]"),
        (lambda: gp.finite_ensemble(ONES.long()), TypeError, r"predictions has dtype torch\.int64"),
        (lambda: gp.finite_ensemble([1.0]), TypeError, "predictions is a list"),  # type: ignore[arg-type]
        (lambda: gp.finite_ensemble(ONES * math.nan), ValueError, "predictions has nan at index 0"),
        (lambda: gp.finite_ensemble(ONES, torch.ones(2)), ValueError, "y has 2 entries"),
        (lambda: gp.finite_ensemble(ONES, sizes=[5]), ValueError, r"sizes\[0\] is 5"),
        (lambda: gp.finite_ensemble(ONES, sizes=[0]), ValueError, r"sizes\[0\] is 0"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
