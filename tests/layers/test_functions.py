"""Functions of torch as modules: each against torch's own result, and calls that have no rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import layers
from widemargin.layers.forms import Unread
from widemargin.layers.network import read

W = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
M = torch.randn(3, 1, 1, generator=torch.Generator().manual_seed(1))
V = M.flatten()
P = nn.Parameter(V.clone())

KNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "x.relu": lambda x: x.relu(),
    "in place": lambda x: x.clone().relu_(),
    "clamp": lambda x: x.clamp(min=0),
    "clamp_min": lambda x: torch.clamp_min(x, 0.0),
    "leaky": lambda x: F.leaky_relu(x, 0.3),
    "dropout": lambda x: F.dropout(F.dropout2d(x, 0.5, training=False), training=False),
    "view": lambda x: x.view(len(x), -1),
    "flatten": lambda x: torch.flatten(x, start_dim=1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1).reshape(x.size(0), 9, 4).unflatten(1, (3, 3)),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "permute list": lambda x: torch.permute(x, (0, -1, 1, 2)),
    "transpose": lambda x: x.transpose(1, -1).mT,
    "mean": lambda x: x.mean((2, 3)),
    "mean keepdim": lambda x: torch.mean(x, dim=[-1], keepdim=True),
    "sum": lambda x: x.sum(1),
    "pad": lambda x: F.pad(x, (1, 0, 0, 2)),
    "slice": lambda x: x[:, 1:, ::2, 0],
    "average pool": lambda x: F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (2, 1)),
    "adaptive pool of lines": lambda x: F.adaptive_avg_pool1d(x.flatten(1, 2), 2),
    "max pool": lambda x: F.max_pool2d(x, (2, 3), stride=1, padding=(0, 1)),
    "torch max pool": lambda x: torch.max_pool2d(x, 2),
    "linear": lambda x: F.linear(x, W[:, 0].flatten(1), V[[0, 1, 2, 0]]),
    "convolution": lambda x: F.conv2d(x, W, V[[0, 1, 2, 0]], stride=2, padding=1),
    "batch norm": lambda x: F.batch_norm(x, V, V.abs() + 0.1, P, None, eps=1e-3),
    "group norm": lambda x: F.group_norm(x, 3, P, V),
    "layer norm": lambda x: F.layer_norm(x, (4, 3)[:2] if x.shape[-1] == 3 else x.shape[2:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[2:], eps=1e-2),
    "add": lambda x: x + x.relu(),
    "twice": lambda x: x + x,
    "add alpha": lambda x: torch.add(x, x.relu(), alpha=-2),
    "sub": lambda x: x.relu() - x,
    "add constant": lambda x: 1 + x + M,
    "add sample": lambda x: M[None] + x,
    "sub constant": lambda x: (1 - (M - x)) - V[:, None, None],
    "in place sum": lambda x: x.relu().add_(x),
    "mul": lambda x: 2 * x * M,
    "div": lambda x: x / 3 / M,
    "neg": lambda x: -x,
    "casts": lambda x: x.float().contiguous().to(x.device).double().detach().type_as(x),
    "zeros": lambda x: x + torch.zeros_like(x) + x.new_ones(1),
}
UNKNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(dim=1),
    "square": lambda x: x * x,
    "product": lambda x: x @ x.mT,
    "quotient": lambda x: 1 / x,
    "mean of samples": lambda x: x - x.mean(dim=0, keepdim=True),
    "mean of all": lambda x: x * 0 + x.mean(),
    "transposed samples": lambda x: x.transpose(0, 1).transpose(0, 1),
    "merged samples": lambda x: x.flatten(0, 1).view(x.shape),
    # An axis of as many entries as there are samples in the recorded pass must not be taken for that of samples.
    "mean over two samples": lambda x: x.reshape(len(x), 2, 18).mean(dim=0),
    "two samples transposed": lambda x: x.reshape(len(x), 2, 18).transpose(0, 1),
    "two samples permuted": lambda x: x.reshape(len(x), 2, 18).permute(1, 0, 2),
    "part of the samples": lambda x: x.reshape(len(x), 2, 18)[0],
    "clamp": lambda x: x.clamp(min=-1),
    "clamp both": lambda x: x.clamp(0, 1),
    "dropout": lambda x: F.dropout(x, training=True),
    "pad": lambda x: F.pad(x, (1, 1), value=1.0),
    "broadcast": lambda x: x + x[:, :1],
    "mask": lambda x: x * (x > 0),
    "max": lambda x: x.amax(dim=1),
    "indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "batch statistics": lambda x: F.batch_norm(x, None, None, training=True),
    "rounded": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "cat": lambda x: torch.cat((x, x), dim=1),
}


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.same = function, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.same(x))


def samples(count: int) -> Tensor:
    return torch.randn(count, 3, 3, 4, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", KNOWN)
def test_a_function_is_read_as_its_module(name: str) -> None:
    model, x = Function(KNOWN[name]), samples(5)
    network = read(model, x)
    assert not any(isinstance(step, Unread) for step in network.steps)
    with torch.no_grad():
        expected = model(x).double().flatten(1)
    torch.testing.assert_close(network.forward(x.double()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_call_without_a_rule_is_unread(name: str) -> None:
    with pytest.raises(TypeError, match="the function"):
        read(Function(UNKNOWN[name]), samples(3)).require(*layers.network.PIECEWISE, layers.forms.Sum)


def test_trained_factors_are_parameters() -> None:
    factor = nn.Parameter(torch.ones(3, 1, 1))
    calls, _ = layers.read_chain(Function(lambda x: x * factor), samples(2))
    assert [list(call.module.parameters()) != [] for call in calls] == [False, True]
