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
        monkeypatch.setattr(torch.autograd, "grad", watched)
        margin_backward(network, MarginLoss(), x, y)
        monkeypatch.undo()
        assert given[0] is not is_known
