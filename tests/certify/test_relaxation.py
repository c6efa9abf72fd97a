"""Linear bounds of graphs: against points of balls at every step, exact geometry, and curvature by autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from certify.test_intervals import regions
from certify.test_radius import METHODS, in_ball, labelled
from geometry.networks import Residual, as_chain, build
from widemargin import certify, geometry
from widemargin.certify.relaxation import CURVATURE, linear_bound
from widemargin.layers.forms import RootMeanSquare
from widemargin.layers.network import read


@pytest.mark.parametrize(("name", "p"), [("cnn", 2.0), ("residual", 1.0), ("images", math.inf), ("norms", 2.0)])
def test_no_point_is_below_a_linear_bound_at_any_step(name: str, p: float) -> None:
    model, x = build(name, batch=1, seed=4)
    network, x = read(model, x), x.double()
    for radius in (0.01, 0.3):
        near = x + radius * in_ball(x.shape[1:], p, 200)
        around = regions(network, x, radius, p, tubes=True)
        size = torch.tensor([radius], dtype=torch.float64)
        for number, (value, at_x) in enumerate(zip(network.values(near), network.values(x))):
            rows = torch.randn(1, 6, *value.shape[1:], dtype=torch.float64)
            bound = linear_bound(network, around, rows, number, x, p)
            points, centre = (h.flatten(1) @ rows[0].flatten(1).T for h in (value, at_x))
            assert (points >= bound.least(size) - 1e-9).all(), (network.names[number], radius)
            distance = torch.linalg.vector_norm((near - x).flatten(1), p, dim=1)
            assert (points >= bound.at_x - bound.slope * distance[:, None] - 1e-9).all()
            if radius == 0.01 and p == 2 and name != "norms":  # and it is not far from the truth
                assert (centre - bound.least(size) < 10 * (centre - points.amin(dim=0)) + 0.1).all()


def test_the_curvature_of_a_division_is_bounded() -> None:
    torch.manual_seed(0)
    worst = 0.0
    for size in (2, 3, 6):
        for eps in (1e-6, 0.1, 1.0):
            step = RootMeanSquare(size=size, eps=eps)
            for scale in (0.1, 0.5, 1.0, 3.0):
                c = scale * torch.randn(30, size, dtype=torch.float64)
                a, u = (nn.functional.normalize(torch.randn_like(c), dim=1) for _ in range(2))
                a[::3], u[::3] = (nn.functional.normalize(c[::3], dim=1) for _ in range(2))

                def along(t: Tensor, c: Tensor = c, u: Tensor = u, a: Tensor = a) -> Tensor:
                    return (step.forward(c + t[:, None] * u) * a).sum(dim=1)  # noqa: B023

                t = torch.zeros(len(c), dtype=torch.float64, requires_grad=True)
                (first,) = torch.autograd.grad(along(t).sum(), t, create_graph=True)
                (second,) = torch.autograd.grad(first.sum(), t)
                unit = (c.square().mean(dim=1) + eps) * math.sqrt(size) / 2
                worst = max(worst, float((second.abs() * unit).max()))
    assert 0.95 * CURVATURE < worst <= CURVATURE


def residual(seed: int) -> tuple[Residual, Tensor, Tensor]:
    torch.manual_seed(seed)
    model = Residual(inputs=2, width=6).double()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.7)
    x = 2 * torch.rand(30, 2).double() - 1
    return model, x, labelled(model, x)


@pytest.mark.parametrize("seed", [1, 2])
def test_radii_of_residual_networks_are_below_exact_margins(seed: int) -> None:
    model, x, y = residual(seed)
    zero, one, two = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    exact = []
    for network in (model, as_chain(model)):  # geometry cuts the graph, and a chain with the same function
        piece = geometry.slice2d(network, zero, one, two, box=(-6.0, 6.0, -6.0, 6.0))
        assert isinstance(piece, geometry.Slice)
        exact.append(geometry.exact_margin(piece, x, y, outside="edge"))
    torch.testing.assert_close(exact[0], exact[1], rtol=1e-8, atol=1e-9)
    inside = exact[0] < 4
    assert int(inside.sum()) > 10
    for method in METHODS:
        found = certify.radius(model, x, y, method=method).values
        assert (found > 0).all()
        assert (found <= exact[0] * (1 + 1e-9)).all()
        if method == "crown":
            assert float((found / exact[0])[inside].median()) > 0.5


@pytest.mark.parametrize(("name", "p"), [("residual", 1.0), ("images", math.inf), ("norms", 2.0)])
def test_certified_radii_of_graphs_are_certified(name: str, p: float) -> None:
    model, x = build(name, batch=2, seed=5)
    model = model.double().eval()
    x = x.double()
    y = labelled(model, x)
    start = None
    for method in METHODS:
        radii = certify.radius(
            model, x, y, p=p, method=method, steps=4 if method == "crown" else 12, start=start
        ).values
        assert (radii > 0).all()
        if start is not None:
            assert (radii >= 0.4 * start).all()
        start = 2 * radii
        for i, radius in enumerate(radii.tolist()):
            with torch.no_grad():
                near = model(x[i] + radius * in_ball(x.shape[1:], p, 500))
            assert (near.argmax(dim=1) == y[i]).all()


def test_group_norm_has_no_first_order_loss() -> None:
    """Half the radius leaves a quarter of the distance between the bound and the linearised score."""
    torch.manual_seed(6)
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 2)).double()
    x = torch.randn(4, 4, 2, 2).double()
    y = labelled(model, x)
    scores = model(x.requires_grad_())
    gaps = (scores.gather(1, y[:, None]) - scores.gather(1, 1 - y[:, None]))[:, 0]
    (gradient,) = torch.autograd.grad(gaps.sum(), x)
    slope, x = torch.linalg.vector_norm(gradient.flatten(1), dim=1), x.detach()
    lost = []
    for radius in (0.02, 0.01):
        bound = certify.margin_bound(model, x, y, radius, method="crown-ibp")[:, 0]
        lost.append(gaps.detach() - radius * slope - bound)
    assert (lost[1] > 0).all()
    assert (lost[1] < 0.3 * lost[0]).all()
