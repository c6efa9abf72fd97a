"""(19) exactly: every ray inside the ball keeps r^J > 1, some ray just outside does not, and Theorem 5 holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geometry.planar import build, relu, spread
from widemargin import bounds, geometry

NAMES = ["relu", "binary", "leaky", "scaled"]


def scene(name: str, count: int = 6) -> tuple[nn.Sequential, geometry.Slice, Tensor, Tensor]:
    model, found = build(name)
    draw = torch.Generator().manual_seed(5)
    x = torch.rand(count, 2, generator=draw, dtype=torch.float64) * 2 - torch.tensor([1.0, 0.5])
    scores = found.scores(x)
    return model, found, x, scores.argmax(dim=1) if scores.shape[1] > 1 else scores[:, 0].sign()


def inside(model: nn.Module, x: Tensor, label: Tensor, t: float, directions: int) -> Tensor:
    """Whether r^J > 1 at distance t of x, direction by direction, by the average Jacobian of each line."""
    angle = torch.arange(directions, dtype=torch.float64) * (2 * math.pi / directions)
    u = torch.stack((angle.cos(), angle.sin()), dim=1)
    J = geometry.average_jacobian(model, x.expand(directions, 2), x + t * u)
    f = model(x[None])[0].detach()
    if len(f) == 1:
        return J[:, 0].norm(dim=1) * t < f[0] * label
    others = [c for c in range(len(f)) if c != int(label)]
    kept = [(J[:, int(label)] - J[:, c]).norm(dim=1) * t < f[int(label)] - f[c] for c in others]
    return torch.stack(kept).all(dim=0)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_largest_ball_of_r_j(name: str) -> None:
    model, _, x, labels = scene(name)
    found = geometry.jacobian_margin(model, x, labels)
    assert (found > 0).all()
    for point, label, radius in zip(x, labels, found):
        for share in (0.3, 0.9, 1.0):
            assert bool(inside(model, point, label, share * float(radius), 300).all())
        assert not bool(inside(model, point, label, 1.002 * float(radius), 3000).all())


@pytest.mark.parametrize("seed", range(4))
def test_theorem_5_with_the_exact_margin(seed: int) -> None:
    """γ_in ≥ (19) ≥ γ_out/Π‖W‖_2 ≥ γ_out/Π‖W‖_F, on random networks."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = spread(relu()).double()
        x = torch.rand(12, 2, dtype=torch.float64) * 2 - 1
    e1, e2 = torch.eye(2, dtype=torch.float64)
    plane = geometry.slice2d(model, torch.zeros(2).double(), e1, e2, (-9, 9, -9, 9), max_cells=10_000)
    assert isinstance(plane, geometry.Slice)
    labels = plane.scores(x).argmax(dim=1)
    labels[0] = (labels[0] + 1) % 3
    exact = geometry.exact_margin(plane, x, labels, outside="edge")
    found = bounds.input_margin(model, x, labels, jacobian="exact")
    assert isinstance(found.jacobian, bounds.Certificate)
    assert found.jacobian.name == "certificate: Jacobian bound (19), exact in 2-D"
    assert (exact >= found.jacobian.values).all()
    assert (found.jacobian.values >= found.spectral.values * (1 - 1e-6)).all()
    assert (found.spectral.values >= found.frobenius.values).all()
    assert found.jacobian.values[0] == 0.0
    assert (found.jacobian.values[1:] > 1.5 * found.spectral.values[1:]).all()  # much sharper, as the paper says


def test_an_affine_network_in_closed_form() -> None:
    layer = nn.Linear(2, 3).double()
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f, weight = layer(x).detach(), layer.weight.detach()
    labels = f.argmax(dim=1)
    gaps = f.gather(1, labels[:, None]) - f
    sizes = torch.linalg.vector_norm(weight[labels][:, None] - weight, dim=2)
    exact = torch.where(sizes > 0, gaps / sizes, torch.inf).amin(dim=1)
    found = geometry.jacobian_margin(nn.Sequential(layer), x, labels, reach=1e4)
    assert found.tolist() == pytest.approx(exact.tolist(), rel=2e-6)
    assert (found <= exact).all()


def test_through_a_kink_in_closed_form() -> None:
    """f = x₁ above 1 and 3x₁ − 2 below: from (2, 0) towards the kink ‖∇̄‖t is 1 + 3(t − 1), and the boundary at 4/3."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    state = {"0.weight": [[1.0, 0.0], [-1.0, 0.0]], "0.bias": [0.0, 1.0], "2.weight": [[1.0, -2.0]]}
    model.load_state_dict({name: torch.tensor(value, dtype=torch.float64) for name, value in state.items()})
    x, y = torch.tensor([[2.0, 0.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert geometry.jacobian_margin(model, x, y).tolist() == pytest.approx([4 / 3], rel=2e-6)
    finer = geometry.jacobian_margin(model, x, y, tolerance=1e-9)
    assert finer.tolist() == pytest.approx([4 / 3], rel=2e-9)
    assert geometry.jacobian_margin(model, x, y, reach=1.0).tolist() == pytest.approx([1.0], rel=2e-6)
    assert geometry.jacobian_margin(model, x, -y).tolist() == [0.0]


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": torch.zeros(2, 3)}, r"x has shape \[2, 3\]"),
        ({"reach": 0.0}, "reach is 0.0"),
        ({"tolerance": math.nan}, "tolerance is nan"),
        ({"max_cells": 2}, r"x\[0\] has more than 2 cells within"),
    ],
)
def test_bad_arguments_are_told(change: dict[str, Any], sentence: str) -> None:
    model, _, x, labels = scene("relu", 2)
    with pytest.raises(ValueError, match=sentence):
        geometry.jacobian_margin(**{"model": model, "x": x, "y": labels, **change})
