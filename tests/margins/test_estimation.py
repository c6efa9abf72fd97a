from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import named
import zoo
from widemargin import losses, margins, places
from widemargin.entry_checks import checked_by_caller
from widemargin.margins import estimation
from widemargin.modules import scores_of
from widemargin.training import margin_backward

EVERY = [*zoo.ZOO, *zoo.TOKENS, *zoo.RECURRENT, *zoo.LOGITS]


def classifier(classes: int = 6) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, classes)).double()
    return network, torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 3])


def exact(network: nn.Module, x: Tensor, y: Tensor, at: tuple[str, ...], **how: Any) -> dict[str, Tensor]:
    with places.watch(network, at, **how) as watched:
        scores = scores_of(network(x))
    found = margins.distance(scores, y, at=watched, classes="all", aggregate="none")
    return {name: d.detach() for name, d in found.items()}


# ------------------------------------------------------------------------------------ derivatives along directions


@pytest.mark.parametrize("entry", EVERY, ids=str)
@pytest.mark.parametrize("mode", [False, True])
def test_along_a_direction_is_the_gradient_times_it(entry: zoo.Entry, mode: bool) -> None:
    """All columns at once, against the gradient of each, in training mode too, with frozen statistics."""
    network, x = entry.network(dtype=torch.float64).train(mode), entry.inputs(dtype=torch.float64)
    at = (entry.place,) if entry.vocabulary else ("input", entry.place)
    with places.watch(network, at, statistics="frozen") as watched:
        scores = scores_of(network(x)).reshape(len(x), -1)
    directions = estimation.draw(watched, 2, torch.Generator().manual_seed(0))
    found = watched.along(scores, directions)
    for column in range(scores.shape[1]):
        for name, gradient in watched.gradients(scores[:, column]).items():
            expected = (directions[name] * gradient).flatten(2).sum(dim=2)
            torch.testing.assert_close(found[name][:, :, column], expected, rtol=1e-9, atol=1e-12)


def test_along_a_direction_by_finite_differences() -> None:
    network, x, _ = classifier()
    with places.watch(network, ("input",)) as at:
        scores = network(x)
    u = estimation.draw(at, 3)
    slope = (network(x + 1e-6 * u["input"]) - network(x - 1e-6 * u["input"])) / 2e-6
    torch.testing.assert_close(at.along(scores, u)["input"], slope.detach(), rtol=1e-6, atol=1e-8)


def test_samples_that_mix_are_refused() -> None:
    network = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    x, y = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match=r"statistics is 'coupled'.*'1'"):
        losses.MarginLoss(classes="all", probes=2)(network, x, y)
    assert losses.MarginLoss(classes="all", probes=2, statistics="frozen")(network, x, y).isfinite().all()


# ------------------------------------------------------------------------------------------------------------ unbiased


@pytest.mark.parametrize("m", [2, 3, 4, 7, 20])
def test_the_correction_by_integration(m: int) -> None:
    """1/c_m = E[√(m/χ²_m)], and the relative variance c_m²·E[m/χ²_m] − 1, over the density of χ²_m."""

    def mean(power: float) -> float:
        value, _ = integrate.quad(lambda t: (m / t) ** power * stats.chi2.pdf(t, m), 0, math.inf, limit=200)
        return float(value)

    assert estimation.correction(m) == pytest.approx(1 / mean(0.5), rel=1e-6)
    if m > 2:
        assert estimation.relative_variance(m) == pytest.approx(estimation.correction(m) ** 2 * mean(1.0) - 1, rel=1e-5)


def test_constants_by_hand() -> None:
    assert estimation.correction(2) == pytest.approx(1 / math.sqrt(math.pi))
    assert estimation.relative_variance(3) == pytest.approx(math.pi / 2 - 1)
    assert estimation.relative_variance(2) == math.inf
    assert estimation.relative_variance(1000) == pytest.approx(1 / 2000, rel=0.01)


@pytest.mark.parametrize("place", ["input", "1"])
def test_unbiased_with_the_stated_variance(place: str) -> None:
    """4000 estimates of every sample, by one batch of copies: mean and variance within 4.5 standard errors."""
    network, x, y = classifier()
    m, copies = 12, 4000
    found = margins.estimate(
        network,
        x.repeat_interleave(copies, dim=0),
        y.repeat_interleave(copies),
        at=(place,),
        probes=m,
        generator=torch.Generator().manual_seed(1),
    )[place].unflatten(0, (len(x), copies))
    truth = exact(network, x, y, (place,))[place]
    relative = found / truth[:, None]
    variance = estimation.relative_variance(m)
    assert ((relative.mean(dim=1) - 1).abs() < 4.5 * math.sqrt(variance / copies)).all()
    fourth = ((relative - 1) ** 4).mean(dim=1)
    error = ((fourth - variance**2) / copies).sqrt()
    assert (((relative - 1).square().mean(dim=1) - variance).abs() < 4.5 * error).all()


def test_without_the_correction_it_would_be_biased() -> None:
    """The test above can fail: c_m is 17 standard errors away from 1."""
    m, copies = 12, 4000
    assert 1 - estimation.correction(m) > 4.5 * math.sqrt(estimation.relative_variance(m) / copies)


def test_of_an_affine_network_the_slopes_are_known() -> None:
    torch.manual_seed(0)
    network = nn.Linear(3, 4).double()
    x, y = torch.randn(2, 3, dtype=torch.float64), torch.tensor([1, 3])
    with places.watch(network, ("input",)) as at:
        difference = margins.differences(network(x), y, classes="all")
    eye = torch.eye(3, dtype=torch.float64)[:, None].expand(3, 2, 3)  # all axes: the sum of squares is the whole norm
    slopes = estimation.probed(difference, at=at, directions={"input": eye})["input"] * math.sqrt(3)
    truth = difference / exact(network, x, y, ("input",))["input"]
    torch.testing.assert_close(slopes, truth, rtol=1e-12, atol=0)
    assert not slopes.requires_grad


def test_where_there_is_no_gradient_there_is_no_estimate() -> None:
    first = nn.Linear(3, 4)
    nn.init.constant_(first.bias, -100.0)
    network = nn.Sequential(first, nn.ReLU(), nn.Linear(4, 3)).double()
    found = margins.estimate(network, torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1]))["input"]
    assert found.isnan().all()


def test_inputs_are_cast_to_the_dtype_of_the_weights() -> None:
    network, x, y = classifier()
    first, again = (
        margins.estimate(network, part, y, generator=torch.Generator().manual_seed(3))["input"]
        for part in (x.float(), x.float().double())
    )
    assert torch.equal(first, again)


def test_the_same_generator_gives_the_same_estimate() -> None:
    network, x, y = classifier()
    first, again, other = (
        margins.estimate(network, x, y, generator=torch.Generator().manual_seed(seed))["input"] for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not first.equal(other)
    assert first.shape == (4, 5)
    assert not first.requires_grad


# -------------------------------------------------------------------------------------------------------- in the loss


def trained() -> tuple[nn.Sequential, Tensor, Tensor]:
    """Ten blobs in 20 dimensions, learned by a small network."""
    torch.manual_seed(0)
    centres = 2 * torch.randn(10, 20)
    y = torch.arange(10).repeat(20)
    x = centres[y] + 0.5 * torch.randn(200, 20)
    network = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    assert (network(x).argmax(dim=1) == y).all()
    return network, x, y


def test_probes_choose_the_nearest_class_more_often_the_more_there_are() -> None:
    network, x, y = trained()
    with places.watch(network, ("input",)) as at:
        scores = network(x)
    truth = margins.distance(scores, y, at=at, classes="all", aggregate="none")["input"].argmin(dim=1)
    difference = margins.differences(scores, y, classes="all")

    def share(m: int) -> float:
        directions = estimation.draw(at, m, torch.Generator().manual_seed(0))
        slopes = estimation.probed(difference, at=at, directions=directions)["input"]
        return float(((difference / slopes).argmin(dim=1) == truth).double().mean())

    one, many = share(1), share(300)
    assert one > 2 / 9  # against 1/9 by chance
    assert many > max(one, 0.9)


def test_with_the_right_choice_the_loss_is_exact() -> None:
    network, x, y = trained()
    settings: dict[str, Any] = {"penalty": losses.Hinge(gamma=3.0), "classes": "all", "stabilize": None}
    torch.manual_seed(0)
    many = losses.MarginLoss(probes=300, **settings)(network, x, y)
    whole = losses.MarginLoss(**settings)(network, x, y)
    right = torch.isclose(many, whole, rtol=1e-5)
    assert right.double().mean() > 0.8
    assert (many <= whole * (1 + 1e-5)).all()  # a wrong choice can only miss the largest penalty
    one = losses.MarginLoss(probes=1, **settings)(network, x, y)
    assert (one <= whole * (1 + 1e-5)).all()
    assert one.sum() < whole.sum()


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        (
            {"probes": 1, "aggregate": "sum"},
            ValueError,
            "probes is 1",
        ),
        ({"probes": 0}, ValueError, "probes is 0"),
        ({"probes": 2.0}, TypeError, "probes is 2.0"),
        ({"probes": 2, "p": 1.0}, ValueError, "probes is 2.*p is 1"),
        ({"probes": 2, "second_order": True}, ValueError, "probes is 2.*second_order is True"),
        ({"probes": 2, "classes": 1}, ValueError, "probes is 2.*classes is 1"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_settings_get_one_sentence(settings: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        losses.MarginLoss(**{"classes": "all", **settings})


def test_an_estimate_needs_two_probes() -> None:
    network, x, y = classifier()
    with pytest.raises(ValueError, match="probes is 1"):
        margins.estimate(network, x, y, probes=1)


@pytest.mark.parametrize("classes", [6, 1])
@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_margin_backward_takes_the_same_gradients(classes: int, aggregate: Any) -> None:
    """Of a binary network too, whose one class would have an exact slope otherwise."""
    network, x, y = classifier(classes)
    y = y if classes > 1 else torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    loss = losses.MarginLoss(classes="all", aggregate=aggregate, probes=2, penalty=losses.Hinge(gamma=9.0))
    torch.manual_seed(5)
    values = loss(network, x, y)
    expected = torch.autograd.grad(values.mean(), list(network.parameters()))
    torch.manual_seed(5)
    done = margin_backward(network, loss, x, y)
    assert ("estimated by random directions" in repr(done)) == (aggregate == "sum")
    torch.testing.assert_close(done.values, values.detach())
    torch.testing.assert_close([p.grad for p in network.parameters()], list(expected))


def test_inputs_by_name() -> None:
    case = named.case()
    found = margins.estimate(case.masked, case.by_name, case.y, generator=torch.Generator().manual_seed(0))
    with checked_by_caller():  # its scores depend on the positions of samples, as masks do
        expected = margins.estimate(case.fixed, case.values, case.y, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found, expected)
