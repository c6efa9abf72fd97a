from __future__ import annotations

import pytest
import torch
from torch import nn

from geometry.networks import CASES, build, double
from widemargin import geometry


@pytest.mark.parametrize("name", CASES)
def test_the_affine_map_is_autograds(name: str) -> None:
    model, x = build(name)
    found = geometry.affine(model, x)
    oracle = double(model)
    for index, sample in enumerate(x.double()):
        J = torch.autograd.functional.jacobian(lambda s: oracle(s[None])[0], sample)
        torch.testing.assert_close(found.F[index], J, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found(x), oracle(x.double()), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(geometry.jacobian(model, x), found.F, rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_the_affine_map_holds_on_the_whole_region(name: str) -> None:
    """Points near enough to have the same pattern have the same map; others of another pattern do not."""
    model, x = build(name)
    other = x + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    here, there = geometry.pattern(model, x), geometry.pattern(model, other)
    same = torch.stack([(here[key] == there[key]).flatten(1).all(dim=1) for key in here]).all(dim=0)
    assert same.any()
    found = geometry.affine(model, x)(other)[same]
    torch.testing.assert_close(found, double(model)(other.double())[same], rtol=1e-10, atol=1e-12)


def test_patterns_by_hand() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Unflatten(1, (1, 4)), nn.MaxPool1d(2), nn.Flatten())
    found = geometry.pattern(model, torch.tensor([[-1.0, 2.0, 0.0, -3.0], [3.0, 1.0, 2.0, 5.0]]))
    assert found["0"].tolist() == [[False, True, False, False], [True, True, True, True]]
    assert found["2"].tolist() == [[[1, 0]], [[0, 1]]]


def test_a_module_that_runs_twice_has_two_patterns() -> None:
    model, x = build("own")
    assert list(geometry.pattern(model, x)) == ["act", "act#2"]
