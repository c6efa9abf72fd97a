"""The l_2 norm of every sample by a kernel of our own, on a GPU: that of float64, at any size and in any layout."""

from __future__ import annotations

import pytest
import torch

from widemargin import norms

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("shape", [(3, 1), (5, 7), (4, 1024), (2, 8192), (3, 8193), (2, 3, 40, 41), (2, 160, 32, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_l2(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from widemargin._cuda import norm_kernel

    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    there = x.cuda()
    for given in (there, there.to(memory_format=torch.channels_last)) if x.ndim == 4 else (there,):
        assert norm_kernel.supports(given)
        expected = x.double().flatten(1).norm(dim=1)
        torch.testing.assert_close(norms.lp(given, 2.0).cpu().double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e30, 5e37])
def test_nothing_overflows_or_underflows(size: float) -> None:
    x = size * torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]])
    found = norms.lp(x.cuda(), 2.0).cpu().double()
    torch.testing.assert_close(found, torch.tensor([5 * size, 0.0], dtype=torch.float64), rtol=1e-5, atol=0)


def test_what_has_a_gradient_or_gaps_is_left_to_torch() -> None:
    from widemargin._cuda import norm_kernel

    x = torch.randn(4, 6, device="cuda")
    assert not norm_kernel.supports(x.clone().requires_grad_())
    assert not norm_kernel.supports(x[:, ::2])
    assert not norm_kernel.supports(x[:1].expand(4, 6))
    assert not norm_kernel.supports(x.double())
    for given in (x[:, ::2], x[:1].expand(4, 6), x.T):
        torch.testing.assert_close(norms.lp(given, 2.0), given.norm(dim=1))
