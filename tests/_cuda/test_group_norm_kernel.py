"""The two sums of a group norm by a kernel of our own, on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 6, 32, 32), (2, 3, 40, 41), (1, 2, 3, 4, 5)])
def test_the_sums_of_a_group_norm_by_a_kernel(shape: tuple[int, ...]) -> None:
    from widemargin._cuda import group_norm_kernel

    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    g = torch.randn(shape, dtype=torch.float64)
    affine = torch.ones(shape[1], dtype=torch.float64, requires_grad=True)
    groups = 1 if shape[1] % 2 else 2
    mean = x.detach().reshape(shape[0], groups, -1).mean(2)
    rstd = (x.detach().reshape(shape[0], groups, -1).var(2, unbiased=False) + 1e-5).rsqrt()
    found = group_norm_kernel.sums(*(t.detach().float().cuda() for t in (g, x, mean, rstd))).cpu().double()
    for k in range(shape[0]):
        out = nn.functional.group_norm(x[k : k + 1], groups, affine)
        (gamma,) = torch.autograd.grad(out, affine, g[k : k + 1])
        torch.testing.assert_close(found[0, k], gamma, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found[1], g.sum(list(range(2, len(shape)))), rtol=1e-4, atol=1e-3)
