"""Layers that are too small for the split: what they have to do, and that two backwards are taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin.losses import MarginLoss
from widemargin.split_backward import backward
from widemargin.split_backward.graph import graph_of
from widemargin.training import margin_backward


def test_work_and_bytes_are_counted() -> None:
    """Of a linear layer batch·out·in multiply-adds, of a convolution one kernel a number; four bytes each."""
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    scores, at, _ = MarginLoss().forward(network, torch.randn(6, 2, 6, 6))
    graph = graph_of(scores, list(at.values()))
    assert graph.work() == 4 * (6 * 3 * 64 + 6 * 4 * 4 * 4 * (2 * 3 * 3))
    assert graph.kept_bytes() == 4 * (6 * 3 + 6 * 4 * 4 * 4)


@pytest.mark.parametrize("limit", ["LEAST_BYTES", "LEAST_WORK"])
def test_where_the_split_would_take_longer_two_backwards_are_taken(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a step that a CUDA graph is made of is split whatever its size."""
    monkeypatch.setattr(backward, limit, {"cpu": 2**20})
    torch.manual_seed(0)
    network, loss = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(), MarginLoss()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    for rows in (6, 6, 5):
        done = margin_backward(network, loss, x[:rows], y[:rows])
        assert (done.method, done.reason) == ("two", backward.TOO_SMALL)
    assert margin_backward(network, loss, x, y, is_replayed=True).method == "split"
    assert margin_backward(network, loss, x, y).method == "two"
