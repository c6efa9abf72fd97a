"""Convolutions as batched matrix products are convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from widemargin.population.conv_matmul import convolve
from widemargin.population.layers import on_stacked


@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("padding", [(0, 0), (2, 1)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_network_has_its_own_convolution(
    stride: tuple[int, int], padding: tuple[int, int], with_bias: bool
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 2, 4, 7, 6, dtype=torch.float64), torch.randn(3, 5, 4, 3, 2, dtype=torch.float64)
    bias = torch.randn(3, 5, dtype=torch.float64) if with_bias else None
    out = convolve(x, weight, bias, stride=stride, padding=padding)
    for k in range(3):
        expected = F.conv2d(x[k], weight[k], None if bias is None else bias[k], stride, padding)
        assert torch.allclose(out[k], expected, rtol=1e-12, atol=1e-12)


def test_first_and_second_derivatives() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 1, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)

    def f(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return convolve(x, weight, bias, stride=(1, 2), padding=(1, 0)).tanh()

    assert torch.autograd.gradcheck(f, (x, weight, bias))
    assert torch.autograd.gradgradcheck(f, (x, weight, bias))


def test_lowered_sees_the_stacked_tensors_and_is_followed_by_autograd() -> None:
    weight = torch.randn(3, 4, 5, requires_grad=True)
    x, shared = torch.randn(2, 3, 5), torch.randn(4)

    def of(w: Tensor, x: Tensor) -> Tensor:
        return on_stacked(lambda w, x, b, _: torch.baddbmm(b[:, None], x, w.mT), w, x, shared, None)

    out = torch.vmap(of, in_dims=(0, 1))(weight, x)
    assert torch.allclose(out, torch.einsum("koi,bki->kbo", weight, x) + shared, atol=1e-5)
    (gradient,) = torch.autograd.grad(out.sum(), weight)
    assert torch.allclose(gradient, x.sum(dim=0)[:, None].expand_as(weight), atol=1e-5)


def test_on_stacked_outside_of_vmap_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="outside of vmap"):
        on_stacked(torch.relu, torch.ones(2))
