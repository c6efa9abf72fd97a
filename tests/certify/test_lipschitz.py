"""Lipschitz constants of graphs, and the radii that follow from them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from certify.test_radius import in_ball, labelled
from geometry.networks import CASES, GRAPHS, build
from widemargin import bounds
from widemargin.certify.lipschitz import constants, lipschitz_radius
from widemargin.layers.network import against, read
from widemargin.layers.trace import INPUT


@pytest.mark.parametrize("name", ["mlp", "leaky", "cnn", "signals"])
def test_of_a_chain_it_is_the_output_margin_over_the_product_of_norms(name: str) -> None:
    model, x = build(name, batch=5)
    model, x = model.double().eval(), x.double()
    y = labelled(model, x)
    expected = bounds.input_margin(model, x, y, directions=0).spectral.values
    network = read(model, x)
    found = lipschitz_radius(network, x, against(network.output.numel(), y), 2.0)
    assert (found >= expected * (1 - 1e-4)).all()  # an average pool has its own norm here, and an upper bound there
    torch.testing.assert_close(found, expected, rtol=1e-4 if name in ("mlp", "leaky") else 0.5, atol=0)


@pytest.mark.parametrize("name", [*GRAPHS, "parametric"])
def test_values_move_by_at_most_the_constant(name: str) -> None:
    model, x = build(name, batch=1, seed=7)
    network, x = read(model, x), x.double()
    near = x + in_ball(x.shape[1:], 2.0, 300)
    moved = torch.linalg.vector_norm((near - x).flatten(1), dim=1)
    limits = constants(network)
    assert limits[INPUT] == 1.0
    for number, (value, at_x) in enumerate(zip(network.values(near), network.values(x))):
        assert (torch.linalg.vector_norm((value - at_x).flatten(1), dim=1) <= limits[number] * moved + 1e-12).all()
    assert "parametric" in CASES


def test_the_constant_of_a_residual_sum_is_the_sum() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(x - 2 * self.inner(x).relu())

    model = Twice().double()
    network = read(model, torch.randn(1, 3).double())
    norm = float(torch.linalg.matrix_norm(model.inner.weight.detach(), ord=2))
    assert constants(network)[len(network.steps) - 2] == pytest.approx(1 + 2 * norm, rel=1e-5)


@pytest.mark.parametrize("p", [1.0, 3.0, math.inf])
def test_other_norms(p: float) -> None:
    model, x = build("residual", batch=4)
    model, x = model.double(), x.double()
    y = labelled(model, x)
    network = read(model, x)
    rows = against(3, y)
    two, other = (lipschitz_radius(network, x, rows, norm) for norm in (2.0, p))
    torch.testing.assert_close(other, two / (5 ** (0.5 - 1 / p) if p > 2 else 1.0))
    assert (lipschitz_radius(network, x, against(3, (y + 1) % 3), p) == 0).all()


def test_a_norm_that_lanczos_approaches_from_below_does_not_certify_too_much() -> None:
    """Along v, the first singular vector of the (1, 2, 1)/4 matrix, the score 1 + v·W(x) reaches 0 at 1/‖W‖_2."""
    n = 1024
    true = 0.5 + 0.5 * math.cos(math.pi / (n + 1))
    v = torch.sin(math.pi * torch.arange(1, n + 1).double() / (n + 1))
    v /= v.norm()
    blur, last = nn.Conv1d(1, 1, 3, padding=1), nn.Linear(n, 1)
    model = nn.Sequential(blur, nn.ReLU(), nn.Flatten(), last).double()
    with torch.no_grad():
        blur.weight.copy_(torch.tensor([[[0.25, 0.5, 0.25]]]))
        blur.bias.fill_(5.0)  # type: ignore[union-attr]
        last.weight.copy_(v)
        last.bias.zero_()
        last.bias.fill_(1 - model(torch.zeros(1, 1, n).double()).item())
        assert abs(model((-v / true).view(1, 1, n)).item()) < 1e-9
    x, y = torch.zeros(1, 1, n).double(), torch.tensor([1.0]).double()
    network = read(model, x)
    for found in (
        lipschitz_radius(network, x, against(1, y), 2.0),
        bounds.input_margin(model, x, y, directions=0).spectral.values,
    ):
        assert 0.99 / true < found.item() <= 1 / true


def test_a_constant_network_has_a_finite_radius() -> None:
    model = nn.Linear(3, 2).double()
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    x = torch.zeros(2, 3).double()
    assert lipschitz_radius(read(model, x), x, against(2, torch.tensor([0, 1])), 2.0).tolist() == [1e9, 0.0]
