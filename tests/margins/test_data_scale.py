"""The scales of a batch against loops over samples and coordinates."""

from __future__ import annotations

import math

import pytest
import torch

import oracles_wide_margin as oracle
from widemargin.margins.data_scale import MAX_COMPARED, DataScale, coordinate_scales, in_units_of, step_length


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (3, 4, 2), (2, 3, 2, 2)])
def test_scales_and_units_are_those_of_a_loop(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn((2, 7, *shape), generator=generator, dtype=torch.float64)
    points = points * 10 ** torch.randn((2, 1, *shape), generator=generator, dtype=torch.float64) + 3
    if shape:
        points[0, :, 0] = 5.0  # it does not vary
    scales = coordinate_scales(points)
    units = in_units_of(scales, points)
    for network in range(2):
        expected = oracle.coordinate_scales(points[network])
        torch.testing.assert_close(scales[network, 0].expand(shape), expected, rtol=1e-12, atol=1e-15)
        wanted = oracle.in_units_of(expected, points[network])
        torch.testing.assert_close(units[network], wanted, rtol=1e-9, atol=1e-12)
    assert not shape or bool((units[0, :, 0] == 0).all())


def test_units_of_measurement_are_left_out_and_similar_spreads_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1, 60, 6, generator=generator, dtype=torch.float64)
    assert torch.equal(coordinate_scales(points * torch.tensor([0.7, 1, 1, 1, 1.2, 1.5])), torch.ones(1, 1, 6).double())
    units = torch.tensor([1e-9, 1.0, 1e3, 20.0, 0.3, 1e6], dtype=torch.float64)
    points = units * points + torch.tensor([0.0, 0.1, 1e9, 0.0, -7.0, 1e3])
    found = in_units_of(coordinate_scales(points), points)
    torch.testing.assert_close(found.std(dim=1), found.std(dim=1)[:, :1].expand(1, 6), rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", [1e-30, 1e18, 1e30])
def test_very_large_and_small_units(unit: float, dtype: torch.dtype) -> None:
    points = torch.randn(1, 20, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    y, gradients = torch.arange(20)[None] % 3, torch.randn(1, 20, 4, dtype=dtype)
    plain, other = DataScale.of(points, y), DataScale.of(unit * points, y)
    torch.testing.assert_close(other.steps_down(gradients / unit, 2.0) / unit, plain.steps_down(gradients, 2.0))
    torch.testing.assert_close(other.separation, plain.separation)


def test_coordinates_that_hardly_vary_do_not_lead_a_step() -> None:
    """A network may magnify them, as a batch norm does; of others the unit stays as it is."""
    points = torch.randn(1, 30, 5, generator=torch.Generator().manual_seed(0)).double()
    points[0, :, 0], points[0, 1:, 1] = 1.0, 0.0
    gradients = torch.ones(1, 30, 5).double()
    scale = DataScale.of(points, torch.arange(30)[None] % 3)
    plain = scale.steps_down(gradients, 2.0)
    gradients[:, :, :2] *= 300
    steps = scale.steps_down(gradients, 2.0)
    torch.testing.assert_close(steps[0, :, 2:], plain[0, :, 2:])
    torch.testing.assert_close((steps * gradients)[0, :, :2], (plain * 1.0)[0, :, :2])
    gradients[:, :, 2:] *= 1e-9  # then those are magnified that vary
    assert float(scale.steps_down(gradients, 2.0)[0, :, :2].abs().max()) < 1e-6
    gradients[:, :, 2:] *= 300e9
    torch.testing.assert_close(scale.steps_down(gradients, 2.0), plain)


def test_samples_whose_gradient_is_not_finite_have_no_step() -> None:
    points = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0))
    gradients = torch.ones(1, 6, 4)
    gradients[0, 2, 1], gradients[0, 4, 0] = torch.inf, torch.nan
    steps = DataScale.of(points, torch.arange(6)[None] % 2).steps_down(gradients, 2.0)
    assert (steps[0] == 0).all(dim=1).tolist() == [False, False, True, False, True, False]
    assert bool(steps.isfinite().all())


def test_what_varies_by_rounding_alone_does_not_vary() -> None:
    points = torch.randn(1, 60, 5, generator=torch.Generator().manual_seed(0))
    points[0, :, 0] = 0.1
    points[0, :, 1] = 7e5 + 0.1
    assert torch.equal(coordinate_scales(points), torch.ones(1, 1, 5))
    points[0, :, 2] *= 1e6
    assert coordinate_scales(points)[0, 0, :2].tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(1, 4), (6, 1), (6, 1, 5, 5)])
def test_of_one_sample_or_one_channel_all_scales_are_1(shape: tuple[int, ...]) -> None:
    points = torch.randn((2, *shape), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(coordinate_scales(points), torch.ones(2, 1, *shape[1:2], *[1] * (len(shape) - 2)))
    assert torch.equal(coordinate_scales(torch.ones(2, *shape)).unique(), torch.ones(1))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_steps_have_the_length_in_units_of_the_scales_and_lead_down(p: float) -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 300.0, 1e-3, 0.0])
    gradients = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64)
    scale = DataScale.of(points, torch.arange(18).view(2, 9) % 3, p)
    steps = scale.steps_down(gradients, p)
    assert bool((steps[:, :, 3] == 0).all())
    moved = (steps / scale.coordinates)[:, :, :3]
    lengths = torch.linalg.vector_norm(moved, p, dim=2)
    torch.testing.assert_close(lengths, scale.length[:, None].expand(2, 9), rtol=1e-9, atol=0)
    assert float((steps * gradients).sum(dim=2).max()) < 0


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_step_lengths_are_those_of_a_loop(p: float, size: int) -> None:
    """Also of several networks at once, and of activations with one number a sample."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, size, 2, 4), (3, size, 1), (3, size)):
        points = torch.randn(shape, generator=generator, dtype=torch.float64) + 5
        y = torch.randint(3, (3, size), generator=generator)
        y[0] = 1
        expected = [oracle.step_length(points[k], y[k].tolist(), p) for k in range(3)]
        torch.testing.assert_close(step_length(points, y, p).tolist(), expected, rtol=1e-9, atol=1e-12)


def test_steps_of_data_far_from_zero_in_float32() -> None:
    """Distances between samples do not suffer from the mean of the data."""
    x, y = torch.randn(64, 20, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
    near, far = (step_length((x + shift)[None], y[None]) for shift in (0.0, 3e3))
    torch.testing.assert_close(far, near, rtol=1e-3, atol=0)


def test_the_scales_of_a_large_batch_are_those_of_some_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3 * MAX_COMPARED, 4, generator=generator, dtype=torch.float64)
    y = (x.sum(dim=2) > 0).long()
    x = x + 5 * y[:, :, None]
    for found, expected in zip(DataScale.of(x, y), DataScale.of(x[:, ::3], y[:, ::3])):
        assert torch.equal(found, expected)
