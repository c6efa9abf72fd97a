from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from geometry.planar import build
from widemargin import bounds, geometry


def sample(name: str) -> tuple[nn.Sequential, Tensor, Tensor]:
    model, found = build(name)
    x = torch.tensor([[0.5, 0.4]], dtype=torch.float64)
    scores = found.scores(x)
    return model, x, scores.argmax(dim=1) if scores.shape[1] > 1 else scores[:, 0].sign()


@pytest.mark.parametrize("name", ["relu", "binary", "leaky"])
def test_on_the_curves_the_sets_end(name: str) -> None:
    model, x, label = sample(name)
    found = geometry.curves(model, x, label, directions=90, reach=30.0)
    u = torch.stack((found.angles.cos(), found.angles.sin()), dim=1)
    met = found.jacobian.isfinite()
    assert int(met.sum()) > 60
    at = geometry.sets(model, x, label, (x + found.jacobian[:, None] * u)[met])
    torch.testing.assert_close(at.jacobian, torch.zeros_like(at.jacobian), rtol=0, atol=1e-9)
    for share in (0.2, 0.6, 0.99):  # first met there: inside before
        assert bool((geometry.sets(model, x, label, (x + share * found.jacobian[:, None] * u)[met]).jacobian > 0).all())
    ring = geometry.sets(model, x, label, x + found.frobenius[:, None] * u)
    torch.testing.assert_close(ring.frobenius, torch.zeros_like(ring.frobenius), rtol=0, atol=1e-9)


def test_the_balls_inside_are_the_bounds() -> None:
    model, x, label = sample("relu")
    found = geometry.curves(model, x, label, directions=7200)
    ball = float(geometry.jacobian_margin(model, x, label))
    assert ball <= float(found.jacobian.min()) <= ball * (1 + 1e-4)
    assert float(found.frobenius[0]) == pytest.approx(
        float(bounds.input_margin(model, x, label, directions=0).frobenius.values)
    )


@pytest.mark.usefixtures("untyped")
def test_what_has_no_curves() -> None:
    model, x, label = sample("binary")
    with pytest.raises(ValueError, match="x has the output margin"):
        geometry.curves(model, x, -label)
    with pytest.raises(ValueError, match=r"x has shape \[2, 2\]"):
        geometry.curves(model, x.repeat(2, 1), label)
    with pytest.raises(ValueError, match=r"reach is -1.0"):
        geometry.curves(model, x, label, reach=-1.0)
