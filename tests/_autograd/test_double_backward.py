"""Convolutions whose gradients have a cheap gradient: the same numbers as torch's, twice and three times."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from widemargin import regularizers
from widemargin._autograd.double_backward import CheapDoubleBackward

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (F.conv1d, {}),
    (F.conv1d, {"stride": 2, "padding": (1,), "groups": 2}),
    (F.conv2d, {"padding": 1}),
    (F.conv2d, {"stride": (2, 1), "padding": (0, 2), "dilation": 2}),
    (F.conv3d, {"stride": 2, "padding": 1}),
]


class WeightGradients(TorchDispatchMode):
    """Counts the convolutions' gradients at weights that are computed inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution_backward.default:
            self.count += args[-1][1]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("convolve", "how"), KINDS)
def test_gradients_of_gradients(convolve: Any, how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    size = [5] * (int(convolve.__name__[4]))
    groups = how.get("groups", 1)
    x = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2 // groups, *[3] * len(size), dtype=torch.float64, requires_grad=True)
    if how.get("dilation", 1) > 1:
        weight = torch.randn(2, 2, *[2] * len(size), dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def ours(*given: Tensor) -> Tensor:
        with CheapDoubleBackward(everywhere=True):
            out: Tensor = convolve(*given, **how)
        return out

    assert "_Convolution" in str(ours(x, weight, bias).grad_fn)
    torch.testing.assert_close(ours(x, weight, bias), convolve(x, weight, bias, **how))
    assert gradcheck(ours, (x, weight, bias))
    assert gradgradcheck(ours, (x, weight, bias))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here"))])  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_regularizer_s_own_gradients(device: str, channels_last: bool) -> None:
    """By the batch over classes, which folds them into samples."""
    torch.manual_seed(0)
    form = torch.channels_last if channels_last else torch.contiguous_format
    body = [nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, groups=2), nn.Tanh()]
    plain = nn.Sequential(*body, nn.Flatten(), nn.Linear(6 * 16, 3)).double()
    cheap = copy.deepcopy(plain).to(device).to(memory_format=form)  # type: ignore[call-overload]
    x, y = torch.rand(4, 1, 12, 12, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    regularizer = regularizers.Jacobian(weight=1.0, form="sum")
    regularizer(plain, x, y).mean().backward()
    with CheapDoubleBackward(everywhere=True):
        regularizer(cheap, x.to(device), y.to(device)).mean().backward()
    for a, b in zip(plain.parameters(), cheap.parameters()):
        one, other = (torch.zeros_like(p).cpu() if p.grad is None else p.grad.cpu() for p in (a, b))
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12)


def test_the_first_pass_leaves_the_weights_out() -> None:
    """Their gradients are not needed there; a backward pass of the regularizer computes each at most twice."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 3, 3, bias=False), nn.Flatten(), nn.Linear(12, 3))
    x, y = torch.rand(2, 1, 6, 6), torch.tensor([0, 1])
    with WeightGradients() as first, CheapDoubleBackward(everywhere=True):
        values = regularizers.Jacobian(weight=1.0, form="sum")(model, x, y)
    assert first.count == 0
    with WeightGradients() as second:
        values.mean().backward()
    assert 2 <= second.count <= 4


def test_where_torch_s_own_is_taken() -> None:
    x, weight = torch.rand(2, 1, 6, 6), torch.rand(1, 1, 3, 3, requires_grad=True)
    with CheapDoubleBackward():
        assert "_Convolution" not in str(F.conv2d(x, weight).grad_fn)  # on a CPU
    with CheapDoubleBackward(everywhere=True):
        assert "_Convolution" in str(F.conv2d(x, weight).grad_fn)
        assert "_Convolution" not in str(F.conv2d(x, weight, padding="same").grad_fn)
        assert "_Convolution" not in str(F.conv2d(x[0], weight).grad_fn)
        with torch.autocast("cpu", torch.bfloat16):
            assert "_Convolution" not in str(F.conv2d(x, weight).grad_fn)
        many = torch.func.vmap(lambda w: F.conv2d(x, w))(weight.expand(3, 1, 1, 3, 3))
        torch.testing.assert_close(many[0], F.conv2d(x, weight))
