"""Layers whose gradients are taken without their nodes; that the gradients are right, `test_backward` holds."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from widemargin.losses import MarginLoss
from widemargin.training import margin_backward


@dataclass(eq=False)
class Saved:
    tensor: Tensor


class Watched(nn.Module):
    """A tanh whose saved tensor can be seen to be freed."""

    saved: weakref.ref[Saved]

    def forward(self, x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda saved: saved.tensor):
            return x.tanh()

    def pack(self, tensor: Tensor) -> Saved:
        saved = Saved(tensor)
        self.saved = weakref.ref(saved)
        return saved


@pytest.mark.parametrize("is_known", [True, False])
def test_a_network_of_known_layers_frees_what_it_saved(is_known: bool) -> None:
    """Before the second pass; kept gradients then take the memory of activations, and no more."""
    freed: list[bool] = []
    torch.manual_seed(0)
    x, y = torch.randn(6, 2, 6, 6), torch.tensor([0, 1, 2, 0, 1, 2])
    watched = Watched()
    layer = nn.GroupNorm(2, 4) if is_known else nn.PReLU(4)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), layer, watched, nn.Flatten(), nn.Linear(64, 3))
    margin_backward(network, MarginLoss(), x, y)  # with the trial, which is a forward pass too
    hook = network.get_parameter("0.weight").register_post_accumulate_grad_hook(
        lambda _: freed.append(watched.saved() is None)
    )
    assert margin_backward(network, MarginLoss(), x, y).method == "split"
    hook.remove()
    assert freed == [is_known]


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
