from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from geometry.networks import CASES, build, double
from widemargin import geometry


def times(J: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("bon,bn->bo", J.flatten(2), x.flatten(1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_theorem_2(name: str, seed: int) -> None:
    model, x = build(name, seed=seed)
    start, end = 3 * x[:3].double(), -2 * x[3:].double()
    oracle = double(model)
    found = times(geometry.average_jacobian(model, start, end), end - start)
    torch.testing.assert_close(found, oracle(end) - oracle(start), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_breakpoints_are_where_the_pattern_changes(name: str) -> None:
    model, x = build(name)
    found = geometry.line(model, 2 * x[0].double(), -x[1].double())
    assert abs(float(found.widths.sum()) - 1) < 1e-12
    assert len(found) == len(found.breakpoints) + 1
    assert (found.breakpoints.diff() > 0).all()
    # Brute force: a change of pattern between dense points has a breakpoint between them, and a piece one pattern.
    t = torch.linspace(0, 1, 4001, dtype=torch.float64)
    codes = _codes(model, 2 * x[0].double() + t.reshape(-1, *(1,) * (x.ndim - 1)) * (-x[1] - 2 * x[0]).double())
    changed = (codes[1:] != codes[:-1]).any(dim=1)
    between = torch.searchsorted(found.breakpoints, t[1:]) - torch.searchsorted(found.breakpoints, t[:-1])
    assert torch.equal(changed, between > 0)
    regions = _codes(model, found.points)
    assert (regions[1:] != regions[:-1]).any(dim=1).all()
    piece = torch.searchsorted(found.breakpoints, t)
    inside = (t[:, None] - found.breakpoints).abs().amin(dim=1) > 1e-6
    assert torch.equal(codes[inside], regions[piece[inside]])


def test_breakpoints_in_closed_form() -> None:
    """|t − ¼| + max(t, ½): kinks at ¼ and ½, the first counted once although two units share it."""
    first, last = nn.Linear(1, 3).double(), nn.Linear(3, 1).double()
    with torch.no_grad():
        first.weight[:] = torch.tensor([[1.0], [-1.0], [1.0]])
        first.bias[:] = torch.tensor([-0.25, 0.25, -0.5])
        last.weight[:] = 1.0
    model = nn.Sequential(first, nn.ReLU(), last)
    found = geometry.line(model, torch.zeros(1), torch.ones(1))
    torch.testing.assert_close(found.breakpoints, torch.tensor([0.25, 0.5], dtype=torch.float64), rtol=0, atol=1e-12)
    J = geometry.average_jacobian(model, torch.zeros(1, 1), torch.ones(1, 1))
    assert float(J) == pytest.approx(-0.25 + 0.25 + 0.5 * 2)


def test_no_breakpoint_and_no_way() -> None:
    model, x = build("mlp")
    J = geometry.average_jacobian(model, x, x)
    torch.testing.assert_close(J, geometry.jacobian(model, x))
    assert len(geometry.line(nn.Sequential(nn.Linear(2, 3)), torch.zeros(2), torch.ones(2))) == 1


def test_pieces_are_walked_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = build("cnn")
    whole = geometry.average_jacobian(model, x[:3], x[3:])
    monkeypatch.setattr("widemargin.geometry.lines._NUMBERS", 2000)
    torch.testing.assert_close(geometry.average_jacobian(model, x[:3], x[3:]), whole, rtol=1e-11, atol=1e-11)


def _codes(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([part.flatten(1).long() for part in geometry.pattern(model, x).values()], dim=1)
