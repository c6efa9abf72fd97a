"""Regions of values inside networks: points of balls lie in them, and they are tight where that can be computed."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from certify.test_radius import in_ball
from geometry.networks import CASES, GRAPHS, build
from widemargin.certify.intervals import Ball, Box, Region, divisors, inputs, through
from widemargin.layers.forms import MaxPool, RootMeanSquare, Slopes, Sum
from widemargin.layers.network import Network, read
from widemargin.layers.trace import INPUT
from widemargin.norms import dual


def regions(network: Network, x: Tensor, radius: float, p: float, *, tubes: bool) -> dict[int, Region]:
    found = {INPUT: inputs(x, torch.full((len(x),), radius, dtype=torch.float64), p, dual(p), tubes=tubes)}
    for number, (step, sources) in enumerate(zip(network.steps, network.inputs)):
        found[number] = through(step, [found[source] for source in sources])
    return found


@pytest.mark.parametrize("name", ["cnn", *GRAPHS])
@pytest.mark.parametrize(("p", "tubes"), [(1.0, True), (2.0, True), (math.inf, False)])
def test_points_of_the_ball_stay_in_the_regions(name: str, p: float, tubes: bool) -> None:
    model, x = build(name, batch=1, seed=3)
    network, x = read(model, x), x.double()
    for radius in (0.02, 2.0):
        near = x + radius * in_ball(x.shape[1:], p, 100)
        found = regions(network, x, radius, p, tubes=tubes)
        for number, (value, at_x) in enumerate(zip(network.values(near), network.values(x))):
            region = found[number]
            assert (value >= region.box.lower).all(), (network.names[number], radius)
            assert (value <= region.box.upper).all(), (network.names[number], radius)
            if region.tube is not None:
                torch.testing.assert_close(region.tube.centre, at_x)
                moved = torch.linalg.vector_norm((value - at_x).flatten(1), dim=1)
                assert (moved <= region.tube.radius).all(), (network.names[number], radius)


def test_every_kind_of_step_is_covered() -> None:
    kinds = {type(step) for name in ("cnn", *GRAPHS) for step in read(*build(name)).steps}
    assert {Slopes, MaxPool, Sum, RootMeanSquare} < kinds
    assert "cnn" in CASES


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_the_box_of_a_division_is_exact(eps: float) -> None:
    """Corners, and 0 where it lies inside: the extrema of c_i/s are among them."""
    torch.manual_seed(0)
    step = RootMeanSquare(size=3, eps=eps)
    for _ in range(40):
        ends = torch.randn(2, 3, dtype=torch.float64).sort(dim=0).values
        choices = [[low, high] + [0.0] * (low < 0 < high) for low, high in ends.T.tolist()]
        corners = torch.tensor(list(itertools.product(*choices)), dtype=torch.float64)
        values = step.forward(corners)
        box = through(step, [Region(box=Box(lower=ends[:1], upper=ends[1:]), tube=None)]).box
        torch.testing.assert_close(box.lower[0], values.amin(dim=0), rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(box.upper[0], values.amax(dim=0), rtol=1e-10, atol=1e-11)
        assert (box.lower[0] <= values).all()
        assert (box.upper[0] >= values).all()


@pytest.mark.parametrize("height", [0.0, 1e-9, 5.0])
def test_a_constant_group_has_finite_regions(height: float) -> None:
    """Of variance 0: only ε keeps the division finite."""
    model = nn.Sequential(nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).double()
    x = torch.full((1, 2, 2, 2), height, dtype=torch.float64)
    network = read(model, x)
    for radius in (1e-6, 1e-3, 1.0):
        found = regions(network, x, radius, 2.0, tubes=True)
        near = x + radius * in_ball(x.shape[1:], 2.0, 300)
        for number, value in enumerate(network.values(near)):
            box = found[number].box
            assert box.upper.isfinite().all()
            assert (value >= box.lower).all()
            assert (value <= box.upper).all()


def test_the_regions_of_a_sum_are_exact_for_independent_terms() -> None:
    one, two = (torch.tensor([[-1.0, 2.0]]).double(), torch.tensor([[3.0, -4.0]]).double())
    radius = torch.tensor([0.5]).double()
    balls = [Ball(centre=centre, radius=radius, q=2.0) for centre in (one, two)]
    found = through(Sum(weights=(1.0, -2.0)), [Region(box=ball.box(), tube=ball) for ball in balls])
    torch.testing.assert_close(found.box.lower, one - 2 * two - 1.5)
    torch.testing.assert_close(found.box.upper, one - 2 * two + 1.5)
    assert found.tube is not None
    torch.testing.assert_close(found.tube.radius, 3 * radius)


def wide(centre: Tensor, radius: float) -> Region:
    """An l_2 ball in a box that does not matter."""
    far = torch.full_like(centre, 1e3)
    ball = Ball(centre=centre, radius=torch.tensor([radius], dtype=centre.dtype), q=2.0)
    return Region(box=Box(lower=-far, upper=far), tube=ball)


def test_the_balls_of_activations_and_pools_are_exact() -> None:
    region = wide(torch.tensor([[[1.0, -2.0, 0.5]]], dtype=torch.float64), 0.25)
    pool = MaxPool(windows=torch.tensor([[0, 1], [1, 2]]), shape=torch.Size((1, 2)))
    for step, factor in ((Slopes(negative=-2.0, positive=1.0), 2.0), (pool, math.sqrt(2))):
        tube = through(step, [region]).tube
        assert tube is not None
        assert 0.25 * factor <= float(tube.radius) <= 0.25 * factor * (1 + 1e-9)


def test_the_divisors_of_a_ball_are_exact() -> None:
    step = RootMeanSquare(size=2, eps=0.1)
    least, most = divisors(step, wide(torch.tensor([[3.0, 4.0]], dtype=torch.float64), 2.0))
    for found, length in ((least, 3.0), (most, 7.0)):
        assert float(found) == pytest.approx(math.sqrt(length**2 / 2 + 0.1), rel=1e-9)
    assert float(divisors(step, wide(torch.zeros(1, 2).double(), 2.0))[0]) == pytest.approx(math.sqrt(0.1))


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_a_ball_outlasts_a_layer_that_scales_entries(p: float) -> None:
    torch.manual_seed(8)
    x = torch.randn(3, 6, dtype=torch.float64)
    size = torch.full((3,), 0.3, dtype=torch.float64)
    for factors in (torch.full((6,), -1.7), torch.tensor([0.2, 1.0, 1.1, -1.2, 0.9, 1.0])):
        norm = nn.BatchNorm1d(6, dtype=torch.float64).eval()
        mixing = nn.Linear(6, 4, dtype=torch.float64)
        assert norm.running_mean is not None
        with torch.no_grad():
            norm.weight.copy_(factors)
            norm.running_mean.normal_()
            norm.bias.normal_()
        network = read(nn.Sequential(norm, mixing), x)
        box = regions(network, x, 0.3, p, tubes=False)[1].box
        found = (box.upper - box.lower) / 2
        scale = factors.double() / (1 + norm.eps) ** 0.5
        rows = mixing.weight.detach()
        exact = size[:, None] * torch.linalg.vector_norm(rows * scale, dual(p), dim=1)
        by_box = size[:, None] * torch.linalg.vector_norm(rows * scale, 1, dim=1)
        by_ball = size[:, None] * torch.linalg.vector_norm(rows, dual(p), dim=1) * scale.abs().max()
        torch.testing.assert_close(found, torch.minimum(by_box, by_ball), rtol=1e-9, atol=1e-9)
        if p == math.inf or len(set(factors.tolist())) == 1:
            torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-9)
        else:
            assert (found >= exact).all()
