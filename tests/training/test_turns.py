"""Losses that take turns, and their CUDA graphs. Without a GPU a stand-in records: it keeps the function."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from widemargin._cuda import graphs
from widemargin.losses import CrossEntropy, WideMargin
from widemargin.training.turns import Turns

CPU = torch.device("cpu")


def stand_in(function: Callable[[], None], _: object) -> Callable[[], None]:
    return function


def test_a_loss_without_turns_is_that_of_every_step() -> None:
    loss = CrossEntropy()
    turns = Turns(loss)
    assert all(turns.loss(step) is loss for step in range(3))
    assert not turns.is_captured
    assert turns.captured(0) is None
    assert turns.close() is None


def test_every_loss_has_a_graph_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "why_not", lambda _: None)
    monkeypatch.setattr(graphs, "capture", stand_in)
    turns, seen = Turns(WideMargin(every=3)), list[int]()

    def passes(x: Tensor) -> Tensor:
        seen.append(int(x))
        return x

    turns.capture(passes, CPU, (), lambda: None)
    assert turns.is_captured
    steps = [turns.captured(step) for step in range(6)]
    assert steps[0] is steps[3] is not steps[1]
    assert steps[1] is steps[2] is steps[4] is steps[5]
    assert [turns.loss(step) for step in range(4)] == [WideMargin(strength=3.0), *[CrossEntropy()] * 2, turns.loss(0)]
    replayed = []
    for step in range(15):
        captured = turns.captured(step)
        assert captured is not None
        captured(torch.tensor(step))
        replayed.append(captured.is_replayed)
    assert seen == list(range(15))
    assert [step for step in range(15) if replayed[step]] == [5, 7, 8, 9, 10, 11, 12, 13, 14]  # each after three steps


def test_a_graph_that_can_not_be_captured_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "why_not", lambda _: None)
    turns = Turns(WideMargin(every=2))
    turns.capture(lambda x: x, CPU, (), lambda: None)
    first, second = turns.captured(0), turns.captured(1)
    assert first is not None
    first.why_not = "it waits"
    assert turns.captured(0) is None
    assert turns.captured(1) is second
    assert turns.close() == "it waits"
    assert not turns.is_captured
