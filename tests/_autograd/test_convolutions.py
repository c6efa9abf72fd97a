"""Convolutions whose gradients have a cheap gradient: the same numbers as torch's, twice and three times."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from widemargin import regularizers
from widemargin._autograd import convolutions
from widemargin._autograd.convolutions import Twice

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (F.conv1d, {}),
    (F.conv1d, {"stride": 2, "padding": (1,), "groups": 2}),
    (F.conv2d, {"padding": 1}),
    (F.conv2d, {"stride": (2, 1), "padding": (0, 2), "dilation": 2}),
    (F.conv3d, {"stride": 2, "padding": 1}),
]


def taken(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the calls of ours."""
    plain = convolutions._AtInput.backward

    def backward(ctx: Any, *gradients: Tensor) -> Any:
        calls.append(1)
        return plain(ctx, *gradients)

    monkeypatch.setattr(convolutions._AtInput, "backward", staticmethod(backward))


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
        with Twice(everywhere=True):
            out: Tensor = convolve(*given, **how)
        return out

    assert "_Convolution" in str(ours(x, weight, bias).grad_fn)
    assert torch.equal(ours(x, weight, bias), convolve(x, weight, bias, **how))
    assert gradcheck(ours, (x, weight, bias))
    assert gradgradcheck(ours, (x, weight, bias))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here"))])  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_regularizer_s_own_gradients(device: str, channels_last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the batch over classes, which folds them into samples."""
    torch.manual_seed(0)
    form = torch.channels_last if channels_last else torch.contiguous_format
    body = [nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, groups=2), nn.Tanh()]
    plain = nn.Sequential(*body, nn.Flatten(), nn.Linear(6 * 16, 3)).double()
    plain = plain.to(device).to(memory_format=form)  # type: ignore[call-overload]
    cheap = copy.deepcopy(plain)
    x = torch.rand(4, 1, 12, 12, dtype=torch.float64, device=device)
    y = torch.tensor([0, 1, 2, 0], device=device)
    regularizer = regularizers.Jacobian(weight=1.0, form="sum")
    calls: list[int] = []
    taken(calls, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(Twice, "_taken", lambda *_, **__: None)
        regularizer(plain, x, y).mean().backward()
    assert not calls
    with Twice(everywhere=True):
        regularizer(cheap, x, y).mean().backward()
    assert calls
    for a, b in zip(plain.parameters(), cheap.parameters()):
        one, other = (torch.zeros_like(p) if p.grad is None else p.grad for p in (a, b))
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12)


def test_the_first_pass_leaves_the_weights_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for their gradients there; a backward pass of the regularizer does, of each layer twice at most."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 3, 3, bias=False), nn.Flatten(), nn.Linear(12, 3))
    x, y = torch.rand(2, 1, 6, 6), torch.tensor([0, 1])
    seen, plain = list[int](), convolutions._How.at_weight

    def noted(*given: Any) -> Tensor:
        seen.append(1)
        return plain(*given)

    monkeypatch.setattr(convolutions._How, "at_weight", noted)
    with Twice(everywhere=True):
        values = regularizers.Jacobian(weight=1.0, form="sum")(model, x, y)
    assert not seen
    values.mean().backward()
    assert 2 <= len(seen) <= 4


def test_where_torch_s_own_is_taken() -> None:
    x, weight = torch.rand(2, 1, 6, 6), torch.rand(1, 1, 3, 3, requires_grad=True)
    with Twice():
        assert "_Convolution" not in str(F.conv2d(x, weight).grad_fn)  # on a CPU
    with Twice(everywhere=True):
        assert "_Convolution" in str(F.conv2d(x, weight).grad_fn)
        assert "_Convolution" not in str(F.conv2d(x, weight, padding="same").grad_fn)
        assert "_Convolution" not in str(F.conv2d(x[0], weight).grad_fn)
        with torch.autocast("cpu", torch.bfloat16):
            assert "_Convolution" not in str(F.conv2d(x, weight).grad_fn)
        many = torch.func.vmap(lambda w: F.conv2d(x, w))(weight.expand(3, 1, 1, 3, 3))
        torch.testing.assert_close(many[0], F.conv2d(x, weight))
