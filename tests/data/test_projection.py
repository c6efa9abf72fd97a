from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from widemargin.data import Samples, to_sphere, to_unit_range


@given(
    st.lists(st.integers(1, 5), min_size=0, max_size=3),
    st.floats(1e-20, 1e20),
    st.integers(0, 2**31),
)
def test_every_sample_lands_on_the_sphere_of_radius_root_d(inner: list[int], scale: float, seed: int) -> None:
    x = scale * (0.1 + torch.rand(4, *inner, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    projected = to_sphere(x)
    assert projected.shape == x.shape
    radius = projected.reshape(4, -1).norm(dim=1)
    assert torch.allclose(radius, torch.full_like(radius, math.sqrt(math.prod(inner))), rtol=1e-12)
    # The direction is kept, so the projection of 3x is that of x.
    assert torch.allclose(to_sphere(3 * x), projected, rtol=1e-12)


def test_single_precision_and_samples() -> None:
    samples = Samples(1e-30 * torch.rand(3, 1, 28, 28), torch.arange(3), torch.arange(3))
    projected = to_sphere(samples)
    assert projected.x.dtype == torch.float32
    assert torch.allclose(projected.x.flatten(1).norm(dim=1), torch.full((3,), 28.0))
    assert projected.y is samples.y
    assert projected.index is samples.index


@pytest.mark.parametrize(("value", "norm"), [(0.0, "0"), (float("nan"), "nan"), (float("inf"), "inf")])
def test_a_sample_without_direction_is_named(value: float, norm: str) -> None:
    x = torch.ones(3, 2)
    x[1] = value
    with pytest.raises(ValueError, match=f"x has norm {norm} at index 1"):
        to_sphere(x)


def test_tokens_have_no_direction() -> None:
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        to_sphere(torch.ones(2, 2, dtype=torch.int64))


def test_unit_range_of_bytes_is_exact_at_both_ends() -> None:
    x = torch.tensor([[0, 255], [51, 128]], dtype=torch.uint8)
    scaled = to_unit_range(x, bounds=(0, 255))
    assert scaled.dtype == torch.float32
    assert scaled.tolist() == [[0.0, 1.0], [pytest.approx(0.2), pytest.approx(128 / 255)]]


def test_unit_range_of_the_data_itself_and_of_others() -> None:
    train = Samples(torch.tensor([[-2.0], [6.0]], dtype=torch.float64), torch.arange(2))
    assert to_unit_range(train).x[:, 0].tolist() == [0.0, 1.0]
    test = to_unit_range(torch.tensor([[8.0]], dtype=torch.float64), bounds=(-2, 6))
    assert test.item() == 1.25  # not clipped


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), None])
def test_a_range_has_two_ends(bounds: tuple[float, float] | None) -> None:
    with pytest.raises(ValueError, match=r"bounds is .*, expected two finite numbers, the first below the second"):
        to_unit_range(torch.ones(3, 2), bounds)
