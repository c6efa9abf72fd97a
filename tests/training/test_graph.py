"""Steps that are recorded and replayed are the same steps; without a GPU a stand-in runs the function again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from widemargin import losses
from widemargin.training import graph, margin_backward

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":

        def stand_in(function: Callable[[], None], _: Any) -> Callable[[], None]:
            return function

        monkeypatch.setattr(graph, "why_not", lambda _: None)
        monkeypatch.setattr(graph, "capture", stand_in)
    return str(request.param)


def training(device: str) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    loss = losses.MarginLoss(at=("input", "1"))

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        values = margin_backward(network, loss, x, y).values
        optimizer.step()
        return values

    return network, step


def batches(device: str, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(n, 5).to(device), torch.randint(3, (n,)).to(device)) for n in sizes]


def test_the_weights_and_losses_are_those_of_the_steps_themselves(device: str) -> None:
    """Also where a batch of another shape comes in between."""
    given = batches(device, (16, 16, 16, 16, 16, 7, 16, 16))
    alone, step = training(device)
    expected = [step(x, y).clone() for x, y in given]
    network, step = training(device)
    static = graph.Static(step)
    found = []
    for x, y in given:
        answer = static(x, y)
        assert isinstance(answer, Tensor)
        found.append(answer.clone())
    assert static.is_recorded
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(list(network.parameters()), list(alone.parameters()), rtol=1e-5, atol=1e-6)


def test_batches_are_left_as_they_are(device: str) -> None:
    given = batches(device, (16,) * 6)
    kept = copy.deepcopy(given)
    static = graph.Static(training(device)[1])
    for x, y in given:
        static(x, y)
    torch.testing.assert_close(given, kept, rtol=0, atol=0)


def test_on_a_cpu_nothing_is_recorded() -> None:
    seen: list[Tensor] = []
    static = graph.Static(lambda x, _: seen.append(x))
    x, y = torch.rand(3, 2), torch.zeros(3)
    for _ in range(6):
        static(x, y)
    assert len(seen) == 6
    assert all(one is x for one in seen)
    assert not static.is_recorded
