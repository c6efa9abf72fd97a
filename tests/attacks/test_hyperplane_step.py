"""The shortest way across a hyperplane: against a solver, and at the bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize

from widemargin import norms
from widemargin.attacks.hyperplane_step import shortest_step


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0, math.inf])
def test_without_bounds_it_is_the_dual_norm(p: float) -> None:
    torch.manual_seed(0)
    w, need = torch.randn(5, 2, 3).double(), torch.rand(5).double()
    way = shortest_step(w, need, torch.zeros_like(w), p, None)
    assert torch.allclose((w * way).flatten(1).sum(dim=1), -need)
    assert torch.allclose(norms.lp(way, p), need / norms.lp(w, norms.dual(p)))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_inside_bounds_a_solver_finds_nothing_shorter(p: float) -> None:
    torch.manual_seed(1)
    w, x = torch.randn(4, 6).double(), torch.rand(4, 6).double()
    most = torch.where(w > 0, x, 1 - x).mul(w.abs()).sum(dim=1)
    need = 0.7 * most
    way = shortest_step(w, need, x, p, (0.0, 1.0))
    assert torch.allclose((w * way).sum(dim=1), -need)
    assert (x + way >= -1e-12).all()
    assert (x + way <= 1 + 1e-12).all()
    for i in range(4):
        found = solved(w[i].numpy(), float(need[i]), x[i].numpy(), p)
        assert float(norms.lp(way, p)[i]) == pytest.approx(found, rel=1e-4)


def solved(w: np.ndarray, need: float, x: np.ndarray, p: float) -> float:
    """The least ‖δ‖_p by a linear program (p of 1 and ∞) or by SLSQP."""
    n = len(w)
    ranges = [(-a, 1 - a) for a in x]
    if p in (1.0, math.inf):
        # |δ_j| ≤ t_j, or one t for all of them.
        slack = np.eye(n) if p == 1 else np.ones((n, 1))
        rows = np.block([[np.eye(n), -slack], [-np.eye(n), -slack]])
        cost = np.r_[np.zeros(n), np.ones(slack.shape[1])]
        equal = np.r_[w, np.zeros(slack.shape[1])][None]
        done = linprog(cost, rows, np.zeros(2 * n), equal, [-need], ranges + [(0, None)] * slack.shape[1])
        return float(done.fun)
    constraint = {"type": "eq", "fun": lambda d: w @ d + need}
    options = {"maxiter": 500, "ftol": 1e-14}
    inside = -0.7 * np.where(w > 0, x, x - 1)
    done = minimize(lambda d: (abs(d) ** p).sum(), inside, bounds=ranges, constraints=constraint, options=options)
    return float(done.fun ** (1 / p))


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_where_there_is_no_way_it_goes_as_far_as_it_can(p: float) -> None:
    w = torch.tensor([[1.0, -2.0], [0.0, 0.0]])
    x = torch.full((2, 2), 0.5)
    way = shortest_step(w, torch.tensor([100.0, 1.0]), x, p, (0.0, 1.0))
    assert torch.equal(x[0] + way[0], torch.tensor([0.0, 1.0]))
    assert torch.equal(way[1], torch.zeros(2))
