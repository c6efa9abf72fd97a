from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from oracles_optim import centred_and_normalised
from widemargin.optim import to_centred_unit_rows, to_frobenius_sphere, to_spectral_sphere

PROJECTIONS: list[Callable[..., Tensor]] = [to_centred_unit_rows, to_frobenius_sphere, to_spectral_sphere]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@st.composite
def weights(draw: st.DrawFn) -> Tensor:
    """Matrices and kernels of any size, scale and offset."""
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    scale = 10.0 ** draw(st.integers(-8, 8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    weight = torch.randn(*shape, draw(st.integers(2, 9)), generator=generator, dtype=torch.float64)
    dtype = draw(st.sampled_from(DTYPES[:2]))
    return ((weight + draw(st.sampled_from([0.0, 1.0, 30.0]))) * scale).to(dtype)


@settings(max_examples=40)
@given(weights())
def test_rows_are_centred_and_unit(weight: Tensor) -> None:
    rows = to_centred_unit_rows(weight).double().flatten(1)
    assert rows.mean(dim=1).abs().max() <= 1e-6
    assert (rows.norm(dim=1) - 1).abs().max() <= 1e-6
    expected = torch.tensor([centred_and_normalised(row) for row in weight.double().flatten(1).tolist()])
    torch.testing.assert_close(rows.to(expected), expected, rtol=0, atol=1e-6)


@settings(max_examples=40)
@given(weights())
def test_frobenius_norm_is_the_root_of_the_number_of_rows(weight: Tensor) -> None:
    new = to_frobenius_sphere(weight)
    assert float(new.double().norm()) == pytest.approx(math.sqrt(len(weight)), rel=1e-6)
    direction = torch.nn.functional.cosine_similarity(new.double().flatten(), weight.double().flatten(), dim=0)
    assert float(direction) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=40)
@given(weights(), st.sampled_from([0.5, 1.0, 3.0]))
def test_the_largest_singular_value_is_the_radius(weight: Tensor, radius: float) -> None:
    new = to_spectral_sphere(weight, radius=radius).double().flatten(1).numpy()
    assert np.linalg.svd(new, compute_uv=False)[0] == pytest.approx(radius, rel=1e-6)


@settings(max_examples=40)
@given(weights(), st.sampled_from(PROJECTIONS))
def test_projecting_twice_changes_no_bit(weight: Tensor, project: Callable[..., Tensor]) -> None:
    once = project(weight)
    assert torch.equal(project(once), once)
    assert once.dtype == weight.dtype
    assert once.data_ptr() != weight.data_ptr()


@pytest.mark.parametrize("project", PROJECTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_weights_of_every_dtype(project: Callable[..., Tensor], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    once = project(torch.randn(20, 3000).to(dtype))
    assert once.dtype == dtype
    assert torch.equal(project(once), once)
    size = {to_spectral_sphere: 1.0}.get(project, math.sqrt(20))
    norm = torch.linalg.matrix_norm(once.double(), ord=2 if project is to_spectral_sphere else "fro")
    assert float(norm) == pytest.approx(size, rel=200 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("project", PROJECTIONS)
def test_transposed_convolutions_are_projected_by_output_channel(project: Callable[..., Tensor]) -> None:
    weight = nn.ConvTranspose2d(6, 4, 3, groups=2).weight.detach()  # [6, 2, 3, 3]
    new = project(weight, axis=1, groups=2)
    channels = torch.stack([weight[:3, 0], weight[:3, 1], weight[3:, 0], weight[3:, 1]])
    expected = project(channels)
    found = torch.stack([new[:3, 0], new[:3, 1], new[3:, 0], new[3:, 1]])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("weight", [torch.rand(5), torch.rand(4, 1), torch.rand(4, 1, 1, 1)])
def test_rows_of_one_number_stay_as_they_are(weight: Tensor) -> None:
    assert torch.equal(to_centred_unit_rows(weight), weight)


def test_no_gradient_flows_through_a_projection() -> None:
    for project in PROJECTIONS:
        assert not project(torch.rand(3, 4, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("project", "weight", "sentence"),
    [
        (to_centred_unit_rows, torch.tensor([[1.0, 2.0], [3.0, 3.0]]), "equal numbers in row 1"),
        (to_frobenius_sphere, torch.zeros(2, 3), "weight has norm 0.0"),
        (to_spectral_sphere, torch.zeros(2, 3), "weight has norm 0.0"),
        (to_frobenius_sphere, torch.tensor([[1.0, math.nan]]), "weight has nan"),
        (to_centred_unit_rows, torch.tensor([[1.0, math.inf]]), "weight has inf"),
    ],
)
def test_weights_without_a_direction(project: Callable[..., Tensor], weight: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        project(weight)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(("weight", "kind"), [(torch.ones(2, 2, dtype=torch.int64), "torch.int64"), (3, "int")])
def test_weights_of_another_kind(weight: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"weight .*{kind}"):
        to_frobenius_sphere(weight)


def test_a_radius_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"radius is 0\.0"):
        to_spectral_sphere(torch.rand(2, 2), radius=0.0)
