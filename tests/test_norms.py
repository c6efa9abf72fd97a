from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor, nn

import oracles
from widemargin import norms

P = (1.0, 1.25, 2.0, 3.0, 10.0, math.inf)


# ------------------------------------------------------------------------------------------------------------------ l_p


@given(
    arrays(np.float64, array_shapes(min_dims=1, max_dims=4, max_side=4), elements=st.floats(-1e3, 1e3)),
    st.one_of(st.sampled_from(P), st.floats(1, 20)),
)
@settings(max_examples=150)
def test_lp_is_the_sum_of_powers(x: Any, p: float) -> None:
    # Powers of tiny entries underflow in the oracle.
    x[np.abs(x) < 1e-9] = 0.0
    torch.testing.assert_close(
        norms.lp(torch.from_numpy(x), p).tolist(), oracles.lp(torch.from_numpy(x), p), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("size", [1e-250, 1e-160, 1e160, 1e250])
def test_lp_neither_overflows_nor_underflows(p: float, size: float) -> None:
    x = torch.tensor([[3.0, -4.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(norms.lp(x * size, p) / size, norms.lp(x, p), rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", P)
def test_lp_of_float32_neither_overflows_nor_underflows(p: float) -> None:
    x = torch.tensor([[3e30, -4e30, 0.0], [3e-30, -4e-30, 0.0]])
    expected = oracles.lp_of([3.0, 4.0], p)
    torch.testing.assert_close(norms.lp(x, p), torch.tensor([expected * 1e30, expected * 1e-30]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(p: float, dtype: torch.dtype) -> None:
    x = torch.full((1, 5000), 40.0, dtype=dtype)  # Σ x² is beyond float16, and the sum of ones stalls in bfloat16
    result = norms.lp(x, p)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), torch.tensor(oracles.lp(x, p), dtype=torch.float64), rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", P)
def test_lp_is_differentiable(p: float) -> None:
    x = torch.tensor([[0.3, -1.7, 0.4], [2.0, 0.5, -0.1]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: norms.lp(v, p), x)


@pytest.mark.parametrize("p", P)
def test_the_gradient_at_zero_is_zero(p: float) -> None:
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    size = norms.lp(x, p)
    assert size.tolist() == [0.0, 0.0]
    (gradient,) = torch.autograd.grad(size.sum(), x)
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("p", P)
def test_what_is_not_finite_is_not_hidden(p: float) -> None:
    sizes = norms.lp(torch.tensor([[1.0, math.nan], [1.0, -math.inf], [3.0, 0.0]]), p)
    assert sizes[0].isnan()
    assert sizes[1] == math.inf
    assert sizes[2] == 3


@given(st.one_of(st.sampled_from(P), st.floats(1, 1e6)))
def test_dual_is_the_conjugate_exponent(p: float) -> None:
    q = norms.dual(p)
    assert q == pytest.approx(oracles.dual(p), rel=1e-6)
    assert (0 if p == math.inf else 1 / p) + (0 if q == math.inf else 1 / q) == pytest.approx(1)
    if p != 1 and q != 1:
        assert norms.dual(q) == pytest.approx(p, rel=1e-4)


@pytest.mark.usefixtures("untyped")
def test_dual_of_every_kind_of_real_number() -> None:
    kinds: tuple[Any, ...] = (1, 1.0, 2, math.inf, Fraction(3, 2), np.float64(4))
    assert [norms.dual(p) for p in kinds] == [math.inf, math.inf, 2, 1.0, 3, 4 / 3]


@given(st.sampled_from(P), st.lists(st.floats(-10, 10), min_size=3, max_size=3), st.integers(0, 100))
def test_hoelder(p: float, entries: list[float], seed: int) -> None:
    """|aᵀb| ≤ ‖a‖_p ‖b‖_q: what makes the dual norm the right denominator."""
    a = torch.tensor([entries], dtype=torch.float64)
    b = torch.randn(1, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    bound = norms.lp(a, p) * norms.lp(b, norms.dual(p))
    assert (a * b).sum().abs() <= bound * (1 + 1e-12) + 1e-300


@pytest.mark.parametrize("p", [1.0, 1.25, 2.0, 3.0, 50.0, math.inf])
@pytest.mark.parametrize("shape", [(7, 5), (4, 2, 3, 3), (6, 1), (6,)])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_the_steepest_direction(p: float, shape: tuple[int, ...], size: float) -> None:
    """‖u‖_p = 1, and ⟨u, g⟩ is the dual norm ‖g‖_q, the largest that Hölder allows; rows of zeros stay zeros."""
    g = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g[2] = 0.0
    g.view(-1)[0] = 0.0
    u = norms.steepest(size * g, p)
    assert u.shape == g.shape
    length = norms.lp(g, norms.dual(p))
    torch.testing.assert_close((u * g).reshape(len(g), -1).sum(dim=1), length, rtol=1e-10, atol=0)
    torch.testing.assert_close(norms.lp(u, p), (length > 0).double(), rtol=1e-10, atol=0)
    assert not u[2].any()


@pytest.mark.parametrize(
    ("p", "expected"), [(1.0, [0.0, -1.0, 0.0]), (2.0, [0.6, -0.8, 0.0]), (math.inf, [1.0, -1.0, 0.0])]
)
def test_steepest_directions_in_closed_form(p: float, expected: list[float]) -> None:
    torch.testing.assert_close(norms.steepest(torch.tensor([[3.0, -4.0, 0.0]]), p), torch.tensor([expected]))
    assert norms.steepest(torch.tensor([[3.0, -4.0, 0.0]]).bfloat16(), p).isfinite().all()


# -------------------------------------------------------------------------------------------------- matrices and layers


@pytest.mark.parametrize("shape", [(4, 3), (1, 5), (5, 1), (3, 2, 2, 3), (2, 3, 4)])
def test_frobenius_and_two_one(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert norms.frobenius(weight).item() == pytest.approx(oracles.frobenius(weight), rel=1e-12)
    assert norms.two_one(weight).item() == pytest.approx(oracles.two_one(weight), rel=1e-12)


def test_two_one_is_by_rows() -> None:
    assert norms.two_one(torch.tensor([[3.0, 4.0], [0.0, 5.0]])).item() == 10.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_spectral_is_the_largest_singular_value(dtype: torch.dtype) -> None:
    weight = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = oracles.spectral(weight.double().numpy())
    assert norms.spectral(weight).item() == pytest.approx(expected, rel=1e-12 if dtype == torch.float64 else 1e-5)


def test_spectral_of_a_large_matrix() -> None:
    """Above 1024 rows and columns, without an SVD: here its singular values are known, and close to each other."""
    n = 1100
    values = torch.linspace(0.5, 3.0, n, dtype=torch.float64)
    reflect = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reflect = reflect / reflect.norm()
    weight = torch.diag(values) - 2 * torch.outer(reflect, reflect * values)
    assert norms.spectral(weight).item() == pytest.approx(3.0, rel=1e-9)
    with torch.autocast("cpu", torch.bfloat16):
        assert norms.spectral(weight.float()).item() == pytest.approx(3.0, rel=1e-5)


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(0, 6), st.integers(0, 10_000), st.sampled_from([1e-9, 1, 1e9])
)
@settings(max_examples=200)
def test_largest_singular_value_of_any_matrix(rows: int, columns: int, rank: int, seed: int, size: float) -> None:
    """Also wide, tall, of low rank, zero and orthogonal ones, where Lanczos runs out of directions early."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(n, rank, generator=generator, dtype=torch.float64) for n in (rows, columns))
    matrix = size * left @ right.T
    if seed % 5 == 0:
        matrix = torch.linalg.qr(torch.randn(columns, columns, generator=generator, dtype=torch.float64)).Q
    value = norms.largest_singular_value(lambda v: matrix @ v, lambda u: matrix.T @ u, matrix.new_ones(columns))
    assert value.item() == pytest.approx(oracles.spectral(matrix.numpy()), rel=1e-12, abs=1e-300)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3), st.integers(0, 10_000))
@settings(max_examples=60)
def test_upper_bounds_of_the_norm_of_a_matrix(rows: int, columns: int, rank: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(*shape, generator=generator).double() for shape in ((rows, rank), (rank, columns)))
    matrix = left @ right
    true = oracles.spectral(matrix.numpy())
    by_svd = norms.spectral_upper_bound(matrix).item()
    by_lanczos = norms.singular_value_upper_bound(lambda v: matrix @ v, lambda u: matrix.T @ u, right.new_ones(columns))
    assert true <= by_svd <= true * (1 + 1e-11)
    assert true <= by_lanczos.item() <= true * (1 + 2e-6) + 1e-300


@pytest.mark.parametrize("n", [150, 512, 4096])
def test_the_upper_bound_of_a_norm_that_lanczos_does_not_reach(n: int) -> None:
    """The matrix with (1, 2, 1)/4 along its diagonals has the largest eigenvalue (1 + cos(π/(n + 1)))/2."""
    kernel = torch.tensor([[[0.25, 0.5, 0.25]]]).double()

    def smooth(v: Tensor) -> Tensor:
        return nn.functional.conv1d(v.view(1, 1, -1), kernel, padding=1).flatten()

    true = 0.5 + 0.5 * math.cos(math.pi / (n + 1))
    like = torch.zeros(n).double()
    estimate = norms.largest_singular_value(smooth, smooth, like).item()
    bound = norms.singular_value_upper_bound(smooth, smooth, like).item()
    assert true * (1 - 1e-5) < estimate <= true * (1 + 1e-13)
    assert true <= bound <= true * (1 + (1.1e-6 if n < 200 else 2.1e-3))
    if n > 200:
        assert estimate * (1 + 1e-6) < true


def test_the_upper_bound_of_a_large_matrix() -> None:
    matrix = torch.diag(torch.linspace(0, 1, 1100)).double()
    assert norms.spectral(matrix) < 1
    assert 1 <= norms.spectral_upper_bound(matrix).item() <= 1.003


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.integers(0, 10_000))
@settings(max_examples=60)
def test_largest_singular_value_in_float32(rows: int, columns: int, rank: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)
    value = norms.largest_singular_value(lambda v: matrix @ v, lambda u: matrix.T @ u, matrix.new_ones(columns))
    assert value.item() == pytest.approx(oracles.spectral(matrix.double().numpy()), rel=2e-5)


CONVOLUTIONS: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = {
    "plain": (nn.Conv2d, (2, 3), {"kernel_size": 3}, (2, 6, 5)),
    "padded": (nn.Conv2d, (2, 3), {"kernel_size": 3, "padding": 1}, (2, 5, 5)),
    "strided": (nn.Conv2d, (1, 2), {"kernel_size": 3, "stride": (2, 1), "padding": (1, 0)}, (1, 7, 6)),
    "dilated": (nn.Conv2d, (2, 2), {"kernel_size": 2, "dilation": (2, 3), "padding": 1}, (2, 6, 6)),
    "grouped": (nn.Conv2d, (4, 6), {"kernel_size": 3, "groups": 2, "padding": 1}, (4, 4, 4)),
    "depthwise": (nn.Conv2d, (3, 3), {"kernel_size": 3, "groups": 3, "stride": 2}, (3, 7, 7)),
    "1×1, stride 2": (nn.Conv2d, (3, 2), {"kernel_size": 1, "stride": 2}, (3, 4, 4)),
    "1-D": (nn.Conv1d, (2, 3), {"kernel_size": 4, "stride": 2, "padding": 2, "dilation": 2}, (2, 11)),
    "3-D": (nn.Conv3d, (1, 2), {"kernel_size": 2, "padding": (1, 0, 1), "stride": (1, 2, 1)}, (1, 3, 4, 3)),
    "to one number": (nn.Conv2d, (2, 1), {"kernel_size": 4}, (2, 4, 4)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_the_norm_of_a_convolution_is_that_of_its_matrix(name: str, bias: bool) -> None:
    kind, channels, arguments, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    layer = kind(*channels, bias=bias, dtype=torch.float64, **arguments)
    matrix = oracles.matrix_of_layer(layer, shape)
    x = torch.randn(1, *shape, dtype=torch.float64)
    without_bias = layer(x) - layer(torch.zeros_like(x))
    torch.testing.assert_close(torch.from_numpy(matrix) @ x.flatten(), without_bias.flatten())  # the oracle is right
    assert norms.spectral_of_layer(layer, shape).item() == pytest.approx(oracles.spectral(matrix), rel=1e-10)


def test_the_kernel_as_a_matrix_has_a_smaller_norm() -> None:
    """Why the operator itself is taken: a constant kernel of n taps has the norm √n as a matrix, n as an operator."""
    layer = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    nn.init.ones_(layer.weight)
    assert norms.spectral(layer.weight.flatten(1)).item() == pytest.approx(3)
    assert norms.spectral_of_layer(layer, (1, 30, 30)).item() == pytest.approx(9, rel=0.03)


def test_circular_padding_is_the_fourier_transform() -> None:
    """With periodic borders the singular values of one channel are the moduli of the kernel's Fourier transform."""
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular", bias=False, dtype=torch.float64)
    kernel = torch.zeros(8, 8, dtype=torch.float64)
    kernel[:3, :3] = layer.weight[0, 0].detach()
    expected = torch.fft.fft2(kernel).abs().max().item()
    assert norms.spectral_of_layer(layer, (1, 8, 8)).item() == pytest.approx(expected, rel=1e-10)


def test_the_norm_of_a_linear_layer_ignores_bias_and_shape() -> None:
    layer = nn.Linear(4, 3)
    assert norms.spectral_of_layer(layer, (7, 4)) == norms.spectral(layer.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_norm_of_a_convolution_in_low_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3, padding=1, dtype=dtype)
    expected = oracles.spectral(oracles.matrix_of_layer(layer, (2, 5, 5)))
    assert norms.spectral_of_layer(layer, (2, 5, 5)).item() == pytest.approx(expected, rel=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert norms.spectral_of_layer(layer, (2, 5, 5)).item() == pytest.approx(expected, rel=1e-5)
    assert layer.weight.dtype == dtype
    assert layer.weight.grad is None


def test_the_same_layer_has_the_same_norm_whatever_the_seed() -> None:
    layer = nn.Conv2d(2, 3, 3)
    torch.manual_seed(1)
    first = norms.spectral_of_layer(layer, (2, 6, 6))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(norms.spectral_of_layer(layer, (2, 6, 6)), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)  # and draws nothing from the global generator


@pytest.mark.parametrize("function", [norms.dual, norms.check_p, lambda p: norms.lp(torch.ones(2, 3), p)])
@pytest.mark.parametrize(
    ("p", "error"),
    [
        (0.5, ValueError),
        (0, ValueError),
        (-1, ValueError),
        (-math.inf, ValueError),
        (math.nan, ValueError),
        (True, TypeError),
        ("2", TypeError),
        (None, TypeError),
        (2j, TypeError),
        (torch.tensor(2.0), TypeError),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_p_is_a_real_number_of_at_least_one(function: Any, p: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^p is "):
        function(p)


def test_shapes_are_executed() -> None:
    """The pytest hook is on: a result of the wrong shape would be noticed."""
    with pytest.raises(TypeError, match="Type-check error"):
        norms.spectral(torch.ones(2, 3, 4))
