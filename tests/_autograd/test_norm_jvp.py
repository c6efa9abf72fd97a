"""The derivative of norms along directions: as torch finds it, and on a GPU by a kernel of our own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jvp
from torch.func import vmap
from torch.nn import functional as F

from widemargin._autograd import norm_jvp

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]


def group(shape: tuple[int, int, int], groups: int, some: int) -> tuple[list[Tensor], Tensor]:
    """What `along` takes, with weights, and what torch finds, direction by direction; all in float64."""
    torch.manual_seed(0)
    x = 3 + 2 * torch.randn(shape, dtype=torch.float64)
    u, weight = torch.randn(some, *shape, dtype=torch.float64), torch.rand(shape[1], dtype=torch.float64)
    expected = [jvp(lambda z: F.group_norm(z, groups, weight), x, one)[1] for one in u]
    parts = x.reshape(shape[0], groups, -1)
    rstd = (parts.var(2, unbiased=False) + 1e-5).rsqrt()
    return [u, x, parts.mean(2), rstd, weight], torch.stack(expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 6, 5), 3), ((3, 4, 1), 1), ((2, 8, 70), 1), ((2, 160, 256), 16), ((1, 12, 1000), 2)]
)
def test_torch_s_own(shape: tuple[int, int, int], groups: int, device: str) -> None:
    given, expected = group(shape, groups, some=3)
    dtype, close = (torch.float64, 1e-10) if device == "cpu" else (torch.float32, 2e-5)
    u, x, mean, rstd, weight = (tensor.to(device, dtype) for tensor in given)
    for w, of in ((weight, expected), (None, expected / given[-1][:, None])):
        found = norm_jvp.norm_jvp(u.flatten(0, 1), x, mean, rstd, w)
        torch.testing.assert_close(found.unflatten(0, (3, -1)).cpu().double(), of, rtol=close, atol=close)
        many = vmap(lambda one, w=w: norm_jvp.norm_jvp(one, x, mean, rstd, w))(u)
        torch.testing.assert_close(many, found.unflatten(0, (3, -1)))


def test_many_inputs_as_well() -> None:
    (u, x, mean, rstd, weight), _ = group((2, 6, 5), 3, some=3)
    xs = torch.stack([x, x + 1, x - 1])
    found = vmap(lambda one, z: norm_jvp.norm_jvp(one, z, mean, rstd, weight))(u, xs)
    alone = [norm_jvp.norm_jvp(one, z, mean, rstd, weight) for one, z in zip(u, xs)]
    torch.testing.assert_close(found, torch.stack(alone))
    found = vmap(lambda z: norm_jvp.norm_jvp(u[0], z, mean, rstd, weight))(xs)
    torch.testing.assert_close(found, torch.stack([norm_jvp.norm_jvp(u[0], z, mean, rstd, weight) for z in xs]))
    with pytest.raises(RuntimeError, match="weights"):
        vmap(lambda w: norm_jvp.norm_jvp(u[0], x, mean, rstd, w))(torch.rand(2, 6, dtype=torch.float64))
