"""Layers whose gradients are taken without their nodes; that the gradients are right, `test_backward` holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from widemargin.losses import MarginLoss
from widemargin.training import margin_backward


def test_a_network_of_known_layers_lets_go_of_what_it_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients take the place of activations, and no more memory."""
    given: list[bool] = []
    plain = torch.autograd.grad

    def watched(*args: Any, **kwargs: Any) -> Any:
        given.append(kwargs.get("retain_graph", False))
        return plain(*args, **kwargs)

    torch.manual_seed(0)
    x, y = torch.randn(6, 2, 6, 6), torch.tensor([0, 1, 2, 0, 1, 2])
    norm = {True: nn.GroupNorm(2, 4), False: nn.PReLU(4)}
    for is_known, layer in norm.items():
        network = nn.Sequential(nn.Conv2d(2, 4, 3), layer, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
        margin_backward(network, MarginLoss(), x, y)
        given.clear()
        with monkeypatch.context() as patched:
            patched.setattr(torch.autograd, "grad", watched)
            assert margin_backward(network, MarginLoss(), x, y).method == "split"
        assert given[0] is not is_known


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_group_norm_in_half_precision(form: Any) -> None:
    """With channels last on a CPU, torch's own gradients of γ and β alone would crash."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    network = network.to(memory_format=form)  # type: ignore[call-overload]
    x, y = torch.randn(6, 2, 6, 6).to(memory_format=form), torch.tensor([0, 1, 2, 0, 1, 2])
    found = []
    for memory in (None, 0):
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            way = margin_backward(network, MarginLoss(), x, y, memory=memory).method
        assert way == ("split" if memory is None else "two")
        found.append([parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None])
    for ours, theirs in zip(*found, strict=True):
        assert float((ours - theirs).abs().max()) < 0.02 * float(theirs.abs().max())
