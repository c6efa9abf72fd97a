"""Steps that are captured and replayed equal the same steps run eagerly; on a CPU a stand-in calls the function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widemargin._cuda import graphs
from widemargin.losses import MarginLoss

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":

        def stand_in(function: Callable[[], None], _: object) -> Callable[[], None]:
            return function

        monkeypatch.setattr(graphs, "why_not", lambda _: None)
        monkeypatch.setattr(graphs, "capture", stand_in)
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)  # beartype, which looks on in tests, draws from it
    return str(request.param)


def training(device: str) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    loss = MarginLoss(at=("input", "1"))

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        values = loss(network, x, y)
        values.mean().backward()
        optimizer.step()
        return values.detach()  # a graph that is kept alive would keep the stream of its gradients

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
    captured = graphs.CapturedStep(step, torch.device(device))
    found = []
    for x, y in given:
        answer = captured(x, y)
        assert isinstance(answer, Tensor)
        found.append(answer.clone())
    assert captured.is_replayed, captured.why_not
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(list(network.parameters()), list(alone.parameters()), rtol=1e-5, atol=1e-6)


def test_batches_are_left_as_they_are(device: str) -> None:
    given = batches(device, (16,) * 6)
    kept = copy.deepcopy(given)
    captured = graphs.CapturedStep(training(device)[1], torch.device(device))
    for x, y in given:
        captured(x, y)
    torch.testing.assert_close(given, kept, rtol=0, atol=0)


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), lambda: np.random.rand()])  # noqa: NPY002
def test_what_draws_on_the_cpu_is_not_recorded(device: str, draw: Callable[[], Any]) -> None:
    """A graph would draw the same for ever."""
    _, step = training(device)

    def drawing(x: Tensor, y: Tensor) -> Tensor:
        draw()
        return step(x, y)

    captured = graphs.CapturedStep(drawing, torch.device(device))
    for x, y in batches(device, (16,) * 6):
        captured(x, y)
    assert not captured.is_replayed
    assert captured.why_not is not None
    assert "draws random numbers on the CPU" in captured.why_not


def test_what_cannot_be_recorded_runs_as_it_is(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(graphs, "capture", refuse)
    given = batches(device, (16,) * 6)
    alone, step = training(device)
    for x, y in given:
        step(x, y)
    network, step = training(device)
    captured = graphs.CapturedStep(step, torch.device(device))
    for x, y in given:
        captured(x, y)
    assert "operation not permitted" in str(captured.why_not)
    torch.testing.assert_close(list(network.parameters()), list(alone.parameters()))


def test_gradients_are_those_of_the_latest_batch(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a batch of another shape, whose gradients lie elsewhere."""
    network, _ = training(device)
    weights = list(network.parameters())

    def stand_in(function: Callable[[], None], _: object) -> Callable[[], None]:
        """As a graph does it: always into the same gradients, and without a word to the parameters."""
        function()
        recorded = captured._gradients

        def replay() -> None:
            elsewhere = [weight.grad for weight in weights]
            function()
            for mine, weight, other in zip(recorded, weights, elsewhere):
                assert mine is not None
                assert weight.grad is not None
                mine.copy_(weight.grad)
                weight.grad = other
            captured._gradients = recorded

        return replay

    if device == "cpu":
        monkeypatch.setattr(graphs, "capture", stand_in)

    def passes(x: Tensor, y: Tensor) -> None:
        network.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(network(x), y).backward()

    captured = graphs.CapturedStep(passes, torch.device(device), network.parameters())
    for x, y in batches(device, (16, 16, 16, 16, 7, 16, 5, 16)):
        captured(x, y)
        found = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        passes(x, y)
        torch.testing.assert_close(found, [parameter.grad for parameter in network.parameters()])
    assert captured.is_replayed


def test_on_a_cpu_nothing_is_replayed() -> None:
    seen: list[Tensor] = []
    captured = graphs.CapturedStep(lambda x, _: seen.append(x), torch.device("cpu"))
    x, y = torch.rand(3, 2), torch.zeros(3)
    for _ in range(6):
        captured(x, y)
    assert len(seen) == 6
    assert all(one is x for one in seen)
    assert not captured.is_replayed
