"""The linear model of the gap: planted coefficients, intervals of held-out networks, and the stored one."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.diagnostics.gap_features import FEATURES
from widemargin.diagnostics.gap_model import (
    conditional_rank_correlation,
    fit_gap_model,
    fitted,
    r_squared,
    stored_model,
)


def planted(noise: float, networks: int = 400) -> tuple[np.ndarray, np.ndarray, list[int]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(networks, 4)) * [1.0, 10.0, 0.1, 1.0] + 3
    gaps = 0.2 + 0.05 * x[:, 0] - 0.01 * x[:, 1] + noise * rng.normal(size=networks)
    return x, gaps, [k // 8 for k in range(networks)]


def test_planted_coefficients_are_found() -> None:
    x, gaps, groups = planted(0.0)
    model = fitted(x, gaps, groups, "abcd")
    slopes = np.array(model.coefficients) / model.scale
    np.testing.assert_allclose(slopes, [0.05, -0.01, 0.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(model.predict(x), gaps, atol=1e-4)


def test_the_interval_has_nine_of_ten_networks_that_were_not_fitted_to() -> None:
    x, gaps, groups = planted(0.02)
    model = fit_gap_model(x[:300], gaps[:300], groups=groups[:300], fitted_on="planted ones", features="abcd")
    predicted = model.predict(x[300:])
    inside = (gaps[300:] >= predicted + model.residuals["0.05"]) & (gaps[300:] <= predicted + model.residuals["0.95"])
    assert 0.8 <= inside.mean() <= 0.98
    assert model.about["tested"]["r2"] > 0.9
    assert model.about["fitted on"] == "planted ones"
    assert model.about["networks"] + model.about["tested"]["networks"] == 300


def test_features_outside_the_range_are_named() -> None:
    x, gaps, groups = planted(0.0)
    model = fitted(x, gaps, groups, "abcd")
    values = dict(zip("abcd", x.mean(axis=0), strict=True))
    assert model.outside(values) == ()
    assert model.outside({**values, "b": 1e6}) == ("b",)


def test_figures_by_hand() -> None:
    gaps, predicted = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 3.0, 2.0])
    assert r_squared(gaps, predicted) == pytest.approx(1 - 2 / 5)
    assert conditional_rank_correlation(gaps, predicted, [0, 0, 0, 0]) == pytest.approx(4 / 6)  # five pairs of six
    six = np.array([0.0, 1.0, 2.0, 9.0, 8.0, 7.0])
    assert conditional_rank_correlation(six, six, list("aaabbb")) == pytest.approx(1.0)
    assert conditional_rank_correlation(six, -six, list("aaabbb")) == pytest.approx(-1.0)
    assert np.isnan(conditional_rank_correlation(gaps, predicted, [0, 1, 2, 3]))


def test_one_group_can_not_be_tested() -> None:
    x, gaps, _ = planted(0.0, 20)
    with pytest.raises(ValueError, match="groups"):
        fit_gap_model(x, gaps, groups=[0] * 20, fitted_on="", features="abcd")


def test_the_stored_model_is_whole() -> None:
    model = stored_model()
    assert model.features == FEATURES
    assert len(model.coefficients) == len(model.mean) == len(model.scale) == len(model.least) == len(FEATURES)
    assert model.residuals["0.05"] < model.residuals["0.95"]
    assert {"fitted on", "tested", "commit", "versions", "hardware"} <= model.about.keys()
