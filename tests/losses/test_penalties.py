from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles_losses as slow
from widemargin.losses import Band, Hinge

margins = st.lists(st.floats(-5, 50), min_size=1, max_size=20)


@given(margins, st.floats(0.01, 20))
def test_hinge_is_what_is_missing_to_gamma(values: list[float], gamma: float) -> None:
    margin = torch.tensor(values, dtype=torch.float64)
    expected = torch.stack([slow.hinge(m, gamma) for m in margin])
    torch.testing.assert_close(Hinge(gamma=gamma)(margin), expected)


@given(margins, st.floats(0.1, 30), st.floats(0, 0.99), st.floats(0, 2))
def test_band_is_odn_equation_1(values: list[float], r: float, share: float, mu: float) -> None:
    margin = torch.tensor(values, dtype=torch.float64)
    expected = torch.stack([slow.band(m, r, share * r, mu) for m in margin])
    torch.testing.assert_close(Band(r=r, theta=share * r, mu=mu)(margin), expected)


def test_band_is_1_at_the_boundary_and_0_inside() -> None:
    band = Band(r=1.2, theta=0.7, mu=0.1)
    at = torch.tensor([0.0, 0.5, 1.2, 1.9], dtype=torch.float64)
    torch.testing.assert_close(band(at), torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), atol=1e-12, rtol=0)


def test_each_place_has_its_gamma() -> None:
    hinge = Hinge(gamma=(1.0, 3.0))
    margin = torch.tensor([0.5])
    assert hinge(margin, 0).item() == pytest.approx(0.5)
    assert hinge(margin, 1).item() == pytest.approx(2.5)
    with pytest.raises(ValueError, match=r"gamma has 2 entries.* 3 places"):
        hinge.check_places(3)


@pytest.mark.parametrize("gamma", [0.0, -1.0, float("nan"), float("inf"), (1.0, 0.0), "1"])
def test_gamma_out_of_range(gamma: float, untyped: None) -> None:
    with pytest.raises((TypeError, ValueError), match="gamma is "):
        Hinge(gamma=gamma)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"r": 1.0, "theta": 1.0}, "theta is 1.0.*< 1"),
        ({"r": 1.0, "theta": -0.1}, "theta is -0.1"),
        ({"mu": -0.1}, "mu is -0.1"),
    ],
)
def test_bands_that_are_none(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Band(**settings)
