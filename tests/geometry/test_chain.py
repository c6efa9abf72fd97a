from __future__ import annotations

import pytest
import torch
from torch import nn

from geometry.networks import CASES, build
from widemargin import geometry
from widemargin.geometry.lines import factors
from widemargin.geometry.network import read


@pytest.mark.parametrize("name", CASES)
def test_theorem_3(name: str) -> None:
    model, x = build(name, batch=20)
    found = geometry.norm_chain(model, 3 * x[:10], -x[10:])
    torch.testing.assert_close(found.moved, found.averaged, rtol=1e-10, atol=1e-10)
    for less, more in (("averaged", "jacobian"), ("jacobian", "spectral"), ("spectral", "frobenius")):
        assert (getattr(found, less) <= getattr(found, more) * (1 + 1e-9)).all(), (less, more)


def test_factors_of_known_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1), nn.LeakyReLU(-2.0), nn.MaxPool1d(3, 1), nn.Flatten())
    network = read(model, torch.randn(1, 1, 6))
    matrix = network.steps[0].linear(torch.eye(6, dtype=torch.float64)[:, None]).flatten(1)  # type: ignore[union-attr]
    expected = [
        (float(torch.linalg.matrix_norm(matrix, ord=2)), float(torch.linalg.matrix_norm(matrix))),
        (2.0, 2.0),
        (3**0.5, 3**0.5),
        (1.0, 1.0),
    ]
    assert factors(network) == [pytest.approx(pair) for pair in expected]
    monkeypatch.setattr("widemargin.geometry.lines._DENSE", 0)  # by products with vectors
    assert factors(network) == [pytest.approx(pair) for pair in expected]
