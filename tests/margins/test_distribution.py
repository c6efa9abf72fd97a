from __future__ import annotations

import itertools
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import oracles
from widemargin.margins import Distribution, by_class
from widemargin.margins.distribution import QUANTILES

MARGINS = st.lists(st.one_of(st.floats(-100, 100), st.just(math.nan)), min_size=1, max_size=30)


def distribution(values: list[float]) -> Distribution:
    return Distribution.of(torch.tensor(values, dtype=torch.float64))


def equal(a: Distribution, b: Distribution) -> bool:
    return torch.equal(a.values, b.values) and a.invalid == b.invalid


@given(MARGINS)
def test_every_statistic(values: list[float]) -> None:
    d = distribution(values)
    if all(math.isnan(v) for v in values):
        assert (len(d), d.invalid) == (0, len(values))
        statistics = [d.mean, d.std, d.ratio, d.minimum, d.share_negative, d.quantile(0.5)]
        assert all(math.isnan(value) for value in statistics)
        return
    expected = oracles.summary(values, QUANTILES)
    summary = d.summary()
    assert list(summary) == list(expected)
    if summary["std"] < 1e-9:  # rounding decides what a spread of nothing is divided by
        summary.pop("mean/std"), expected.pop("mean/std")
    assert summary == {key: pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True) for key, value in expected.items()}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], q: float) -> None:
    assert distribution(values).quantile(q) == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=40, unique=True), st.integers(1, 20))
@settings(max_examples=50)
def test_density_is_scipys(values: list[float], points: int) -> None:
    d = distribution(values)
    if d.std < 1e-3:
        return
    grid = np.linspace(d.minimum - d.std, d.quantile(1.0) + d.std, points)
    expected = stats.gaussian_kde(values)(grid)
    torch.testing.assert_close(d.density(grid.tolist()), torch.from_numpy(expected), rtol=1e-9, atol=1e-12)
    width = d.std / 3
    own = torch.tensor(oracles.density(values, grid.tolist(), width), dtype=torch.float64)
    torch.testing.assert_close(d.density(torch.from_numpy(grid), bandwidth=width), own, rtol=1e-9, atol=1e-12)


def test_density_has_area_one_also_over_many_samples() -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grid = torch.linspace(-6, 6, 601, dtype=torch.float64)
    density = Distribution.of(values).density(grid)
    assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-6)
    assert density[300].item() == pytest.approx(1 / math.sqrt(2 * math.pi), rel=0.05)


@given(MARGINS, MARGINS, MARGINS)
def test_merging_is_associative_commutative_and_exact(a: list[float], b: list[float], c: list[float]) -> None:
    x, y, z = map(distribution, (a, b, c))
    together = distribution(a + b + c)
    assert equal(x.merge(y).merge(z), together)
    assert equal(x.merge(y.merge(z)), together)
    for order in itertools.permutations((x, y, z)):
        assert equal(order[0].merge(*order[1:]), together)
    assert equal(x.merge(), x)


def test_merging_across_processes() -> None:
    values = torch.randn(101, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[7] = math.nan
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        first, second = processes.map(Distribution.of, (values[:40], values[40:]))
        merged = second.merge(first)
    assert equal(merged, Distribution.of(values))


def test_a_number_of_any_dtype() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        margins = torch.tensor([2.0, -1.0, math.nan], dtype=dtype, requires_grad=True)
        d = Distribution.of(margins)
        assert d.values.tolist() == [-1.0, 2.0]
        assert d.values.dtype == torch.float64
        assert not d.values.requires_grad


def test_infinite_margins_count() -> None:
    d = distribution([math.inf, 1.0, -math.inf])
    assert (d.minimum, d.quantile(0.5), len(d), d.invalid) == (-math.inf, 1.0, 3, 0)


def test_equal_margins_have_no_ratio_and_no_density() -> None:
    d = distribution([2.0, 2.0, 2.0])
    assert (d.mean, d.std) == (2.0, 0.0)
    assert math.isnan(d.ratio)
    with pytest.raises(ValueError, match=r"^bandwidth is 0\.0"):
        d.density([0.0])


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan])
def test_a_bandwidth_is_positive(bandwidth: float) -> None:
    with pytest.raises(ValueError, match=r"^bandwidth is "):
        distribution([1.0, 2.0]).density([0.0], bandwidth=bandwidth)


@pytest.mark.parametrize("values", [[math.nan], [1.0], [1.0, math.nan]])
def test_a_density_needs_two_margins(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^a density needs at least 2 valid margins, got [01]$"):
        distribution(values).density([0.0])


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_is_a_share(q: float) -> None:
    with pytest.raises(ValueError, match=r"^q is "):
        distribution([1.0]).quantile(q)


@pytest.mark.usefixtures("untyped")
def test_margins_are_one_a_sample() -> None:
    with pytest.raises(ValueError, match=r"^margins has shape \[2, 3\]"):
        Distribution.of(torch.zeros(2, 3))
    listed: Any = [1.0, 2.0]
    with pytest.raises(TypeError, match=r"^margins is a list"):
        Distribution.of(listed)


# ----------------------------------------------------------------------------------------------------------- by class


@pytest.mark.parametrize(
    "labels", [torch.tensor([3, 0, 3, 0, 3]), torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0]), torch.tensor([0, 0, 0, 0, 0])]
)
def test_by_class(labels: Tensor) -> None:
    margins = torch.tensor([1.0, -2.0, math.nan, 4.0, 5.0], dtype=torch.float64)
    result = by_class(margins, labels)
    assert sorted(result) == sorted({int(label) for label in labels.tolist()})
    for label, d in result.items():
        own = [m for m, other in zip(margins.tolist(), labels.tolist()) if other == label]
        assert equal(d, distribution(own))
    first, *others = result.values()
    assert equal(first.merge(*others), Distribution.of(margins))


@pytest.mark.usefixtures("untyped")
def test_by_class_needs_a_label_a_margin() -> None:
    with pytest.raises(ValueError, match=r"^y has shape \[2\]"):
        by_class(torch.zeros(3), torch.tensor([0, 1]))
