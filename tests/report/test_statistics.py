from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from widemargin.margins.distribution import Distribution
from widemargin.report.schema import ArmResult, Density
from widemargin.report.statistics import POINTS, density, places, statistics


def test_statistics_are_those_of_a_measurement() -> None:
    values = torch.randn(501, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.3
    expected = Distribution.of(values)
    found = statistics([*values.tolist(), None])
    assert (found.count, found.invalid) == (502, 1)
    assert found.mean == pytest.approx(expected.mean, rel=1e-12)
    assert found.std == pytest.approx(expected.std, rel=1e-12)
    assert found.ratio == pytest.approx(expected.ratio, rel=1e-12)
    assert found.share_negative == expected.share_negative
    for q, value in found.quantiles.items():
        assert value == pytest.approx(expected.quantile(q), rel=1e-12)


def test_without_a_margin_there_are_no_statistics() -> None:
    found = statistics([None, None])
    assert found.invalid == 2
    assert all(map(math.isnan, (found.mean, found.std, found.ratio, found.share_negative)))
    assert density([None, None]) == []


def test_the_density_is_the_sum_of_kernels() -> None:
    """The sum over all samples, each with its own kernel, without cells."""
    values = np.random.default_rng(0).gamma(2.0, 1.0, 3000)
    curve = np.array(density(values.tolist()))
    iqr = np.subtract(*np.quantile(values, (0.75, 0.25)))
    h = 0.9 * min(values.std(), iqr / 1.34) * len(values) ** -0.2
    exact = np.exp(-0.5 * ((curve[:, :1] - values) / h) ** 2).sum(1) / (len(values) * h * math.sqrt(2 * math.pi))
    assert len(curve) == POINTS
    np.testing.assert_allclose(curve[:, 1], exact, atol=2e-3 * exact.max())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_area_under_the_density_is_one_at_any_scale(scale: float) -> None:
    curve = np.array(density((scale * np.random.default_rng(1).normal(5, 1, 2000)).tolist()))
    assert np.trapezoid(curve[:, 1], curve[:, 0]) == pytest.approx(1, abs=0.01)


def test_a_few_samples_far_away_do_not_squeeze_the_rest() -> None:
    values: list[float | None] = [*np.random.default_rng(2).normal(0, 1, 5000).tolist(), 1e9]
    assert max(x for x, _ in density(values)) < 10


def test_half_of_the_samples_at_one_value_still_have_a_density() -> None:
    values: list[float | None] = [*[0.0] * 50, *map(float, range(50))]
    curve = density(values)
    assert len(curve) == POINTS
    assert all(math.isfinite(y) and y >= 0 for _, y in curve)


def test_equal_margins_have_no_density() -> None:
    assert density([0.25] * 10) == []
    assert density([0.25]) == []


def test_a_density_from_elsewhere_is_taken_as_it_is() -> None:
    given = Density(grid=[0.0, 1.0], density=[0.5, 0.25], count=9, mean=0.4, std=0.2, share_negative=0.1)
    assert density(given) == [(0.0, 0.5), (1.0, 0.25)]
    found = statistics(given)
    assert (found.count, found.mean, found.ratio, found.share_negative) == (9, 0.4, 2.0, 0.1)


def test_places_keep_their_order() -> None:
    arms = [
        ArmResult(name="a", margins={"input": [], "b": []}),
        ArmResult(name="c"),
        ArmResult(name="d", margins={"a": [], "b": []}),
    ]
    assert places(arms) == ["input", "b", "a"]
