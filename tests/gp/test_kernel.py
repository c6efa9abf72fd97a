from __future__ import annotations

import importlib
import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oracles_gp
from widemargin import data, gp, models
from widemargin.gp.kernel import compose_

EPS = torch.finfo(torch.float64).eps
ROUNDING = 200 * EPS  # of numbers of size 1, on any CPU


def test_known_values() -> None:
    """h(−1) = 0, h(0) = 1/π, h(1) = 1, and their images under h."""
    t = torch.tensor([[-1.0, 0.0, 1.0]], dtype=torch.float64)
    assert compose_(t.clone(), 1).tolist() == [[-1.0, 0.0, 1.0]]
    assert compose_(t.clone(), 2)[0].tolist() == pytest.approx([0.0, 1 / math.pi, 1.0], abs=ROUNDING)
    third = [1 / math.pi, float(oracles_gp.h(1 / mpmath.pi)), 1.0]
    assert compose_(t.clone(), 3)[0].tolist() == pytest.approx(third, abs=ROUNDING)
    assert float(compose_(t.clone(), 40)[0, 2]) == pytest.approx(1.0, abs=ROUNDING)


def test_known_values_through_points() -> None:
    x = oracles_gp.circle(0, 90, 180, 60)
    expected = [1.0, 1 / math.pi, 0.0, (math.sqrt(3) / 2 + 0.5 * 2 * math.pi / 3) / math.pi]
    assert gp.kernel(x[:1], x, 2)[0].tolist() == pytest.approx(expected, abs=ROUNDING)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("t", ["-0.99", "-0.5", "0", "0.97"])
def test_against_integrals_over_weights(t: str, depth: int) -> None:
    """The covariance of wide networks, by quadrature in 20 digits: no closed form of h on the other side."""
    with mpmath.workdps(20):
        expected = float(oracles_gp.covariance(mpmath.mpf(t), depth))
    value = compose_(torch.tensor([[float(t)]], dtype=torch.float64), depth)
    assert float(value) == pytest.approx(expected, abs=ROUNDING)


def test_depth_one_is_the_scaled_product() -> None:
    x, z = oracles_gp.sphere(5, 7, seed=0), oracles_gp.sphere(4, 7, seed=1)
    torch.testing.assert_close(gp.kernel(x, z, 1), x @ z.T / 7, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("depth", [2, 3, 5, 20])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_precise_near_plus_and_minus_one(depth: int, sign: float) -> None:
    """Against 60 digits of the printed formula, at the very floats that are given, from 1e-16 to 0.1 away from ±1."""
    away = 10.0 ** torch.arange(-16, 0, dtype=torch.float64)
    t = sign * (1.0 - away)
    value = compose_(t.clone().unsqueeze(0), depth)[0]
    with mpmath.workdps(60):
        expected = [mpmath.mpf(v) for v in t.tolist()]
        for _ in range(depth - 1):
            expected = [oracles_gp.h(v) for v in expected]
        error = max(abs(mpmath.mpf(v) - e) for v, e in zip(value.tolist(), expected, strict=True))
        assert error <= depth * ROUNDING
        if sign < 0 and depth == 2:  # h is small here: the error is small against it, too
            relative = [abs(v - e) / e for v, e in zip(value.tolist(), expected, strict=True)]
            assert max(relative[4:]) < 1e-3
            assert max(relative[8:]) < 1e-7
    assert ((value >= -ROUNDING) & (value <= 1 + ROUNDING)).all()


@given(st.floats(-1.0, 1.0), st.integers(2, 6))
def test_between_zero_and_one_and_odd_part(t: float, depth: int) -> None:
    """0 ≤ h ≤ 1, h(t) ≥ t, and h(t) − h(−t) = t."""
    both = compose_(torch.tensor([[t, -t]], dtype=torch.float64), depth)[0]
    assert bool(((both >= -ROUNDING) & (both <= 1 + ROUNDING)).all())
    once = compose_(torch.tensor([[t, -t]], dtype=torch.float64), 2)[0]
    assert float(once[0] - once[1]) == pytest.approx(t, abs=ROUNDING)
    assert float(once[0]) >= t - ROUNDING


def test_against_wide_networks_with_scaled_relu() -> None:
    """Outputs of a network are 3000 draws that share their hidden layers; four networks of width 1500."""
    torch.manual_seed(0)
    x = oracles_gp.sphere(4, 9, seed=3).float()
    x = torch.cat([x, -x[:1]])
    sampled = []
    with torch.no_grad():
        for _ in range(4):
            outputs = models.build("farhang-mlp", inputs=9, width=1500, depth=3, outputs=3000)(x)
            sampled.append(outputs @ outputs.T / outputs.shape[1])
    measured = torch.stack(sampled).mean(0).double()
    # standard error of a product of two outputs ≤ √2/√(4·3000), that of the hidden layers' fluctuations as much again
    torch.testing.assert_close(measured, gp.kernel(x, x, 3), atol=0.05, rtol=0)
    assert (measured - gp.kernel(x, x, 2)).abs().max() > 0.15  # the tolerance tells depths apart
    assert (measured - gp.kernel(x, x, 4)).abs().max() > 0.09


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_positive_semidefinite_symmetric_and_blind_to_rotations(depth: int) -> None:
    x = oracles_gp.sphere(60, 12, seed=4)
    gram = gp.kernel(x, x, depth)
    assert float(torch.linalg.eigvalsh(gram)[0]) > -60 * ROUNDING
    torch.testing.assert_close(gram, gram.T, atol=ROUNDING, rtol=0)
    rotation = torch.linalg.qr(oracles_gp.sphere(12, 12, seed=5)).Q
    torch.testing.assert_close(gp.kernel(x @ rotation, x @ rotation, depth), gram, atol=depth * ROUNDING, rtol=0)


def test_float32_is_computed_in_float64_on_the_sphere() -> None:
    x = data.to_sphere(oracles_gp.sphere(30, 50, seed=6).float())
    gram = gp.kernel(x, x, 4)
    assert gram.dtype == torch.float64
    assert (gram.diagonal() - 1).abs().max() <= ROUNDING  # x itself is 1e-7 off the sphere
    assert gram.max() <= 1 + ROUNDING
    torch.testing.assert_close(gram, gp.kernel(x.double(), x.double(), 4), atol=0, rtol=0)


def test_images_are_flattened() -> None:
    x = data.to_sphere(torch.rand(6, 1, 3, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(gp.kernel(x, x[:2], 3), gp.kernel(x.flatten(1), x[:2].flatten(1), 3), atol=0, rtol=0)


def test_pieces_give_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    t = torch.linspace(-1.0, 1.0, 70, dtype=torch.float64).view(10, 7)
    whole = compose_(t.clone(), 4)
    monkeypatch.setattr(importlib.import_module("widemargin.gp.kernel"), "PIECE_PER_THREAD", 21)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    torch.testing.assert_close(compose_(t.clone(), 4), whole, atol=ROUNDING, rtol=0)


X = oracles_gp.sphere(3, 4, seed=0)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("x1", "x2", "depth", "error", "words"),
    [
        (X, 1.1 * X, 3, ValueError, r"x2 has norm 2\.2 at index 0"),
        (torch.cat([X, 0 * X]), X, 3, ValueError, "x1 has norm 0 at index 3"),
        (torch.full((1, 4), math.nan), X, 3, ValueError, "x1 has norm nan at index 0"),
        (X, oracles_gp.sphere(3, 5, seed=0), 3, ValueError, "x2 has d_0 = 5"),
        (X, X[0], 3, ValueError, r"x2 has shape \[4\]"),
        (X[:0], X, 3, ValueError, r"x1 has shape \[0, 4\]"),
        (X.long(), X, 3, TypeError, r"x1 has dtype torch\.int64"),
        (X.tolist(), X, 3, TypeError, "x1 is a list"),
        (X.clone().requires_grad_(), X, 3, ValueError, "x1 requires grad"),
        (X, X, 0, ValueError, "depth is 0"),
        (X, X, 2.0, TypeError, r"depth is 2\.0"),
        (X, X, True, TypeError, "depth is True"),
    ],
)
def test_errors(x1: Tensor, x2: Tensor, depth: int, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gp.kernel(x1, x2, depth)
