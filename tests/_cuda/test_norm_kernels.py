"""Triton kernels on a GPU: the l_2 norm of float64 at any size and in any layout, and the sums of a group norm."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin import norms

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("shape", [(3, 1), (5, 7), (4, 1024), (2, 8192), (3, 8193), (2, 3, 40, 41), (2, 160, 32, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_l2(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from widemargin._cuda import norm_kernels

    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    there = x.cuda()
    for given in (there, there.to(memory_format=torch.channels_last)) if x.ndim == 4 else (there,):
        assert norm_kernels.supports(given)
        expected = x.double().flatten(1).norm(dim=1)
        torch.testing.assert_close(norms.lp(given, 2.0).cpu().double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e30, 5e37])
def test_nothing_overflows_or_underflows(size: float) -> None:
    x = size * torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]])
    found = norms.lp(x.cuda(), 2.0).cpu().double()
    torch.testing.assert_close(found, torch.tensor([5 * size, 0.0], dtype=torch.float64), rtol=1e-5, atol=0)


def test_what_has_a_gradient_or_gaps_is_left_to_torch() -> None:
    from widemargin._cuda import norm_kernels

    x = torch.randn(4, 6, device="cuda")
    assert not norm_kernels.supports(x.clone().requires_grad_())
    assert not norm_kernels.supports(x[:, ::2])
    assert not norm_kernels.supports(x[:1].expand(4, 6))
    assert not norm_kernels.supports(x.double())
    for given in (x[:, ::2], x[:1].expand(4, 6), x.T):
        torch.testing.assert_close(norms.lp(given, 2.0), given.norm(dim=1))


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 6, 32, 32), (2, 3, 40, 41), (1, 2, 3, 4, 5)])
def test_the_sums_of_a_group_norm_by_a_kernel(shape: tuple[int, ...]) -> None:
    from widemargin._cuda import norm_kernels

    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    g = torch.randn(shape, dtype=torch.float64)
    affine = torch.ones(shape[1], dtype=torch.float64, requires_grad=True)
    groups = 1 if shape[1] % 2 else 2
    mean = x.detach().reshape(shape[0], groups, -1).mean(2)
    rstd = (x.detach().reshape(shape[0], groups, -1).var(2, unbiased=False) + 1e-5).rsqrt()
    found = norm_kernels.group_norm_sums(*(t.detach().float().cuda() for t in (g, x, mean, rstd))).cpu().double()
    for k in range(shape[0]):
        out = nn.functional.group_norm(x[k : k + 1], groups, affine)
        (gamma,) = torch.autograd.grad(out, affine, g[k : k + 1])
        torch.testing.assert_close(found[0, k], gamma, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found[1], g.sum(list(range(2, len(shape)))), rtol=1e-4, atol=1e-3)
