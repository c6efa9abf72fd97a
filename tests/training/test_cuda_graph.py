"""Steps that are recorded and replayed are the same steps; without a GPU a stand-in runs the function again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from widemargin import losses, regularizers
from widemargin._cuda import graphs
from widemargin.training import Sgd, TrainingStopped, cuda_graph, fit, margin_backward
from widemargin.training.batches import Place, Source, source
from widemargin.training.config import Task

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":

        def stand_in(function: Callable[[], None], _: Any) -> Callable[[], None]:
            return function

        monkeypatch.setattr(graphs, "why_not", lambda _: None)
        monkeypatch.setattr(graphs, "capture", stand_in)
    monkeypatch.setattr(cuda_graph, "_of_python", lambda: None)  # beartype, which looks on in tests, draws from it
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
    static = cuda_graph.Static(step)
    found = []
    for x, y in given:
        answer = static(x, y)
        assert isinstance(answer, Tensor)
        found.append(answer.clone())
    assert static.is_recorded, static.why_not
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(list(network.parameters()), list(alone.parameters()), rtol=1e-5, atol=1e-6)


def test_batches_are_left_as_they_are(device: str) -> None:
    given = batches(device, (16,) * 6)
    kept = copy.deepcopy(given)
    static = cuda_graph.Static(training(device)[1])
    for x, y in given:
        static(x, y)
    torch.testing.assert_close(given, kept, rtol=0, atol=0)


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), lambda: np.random.rand()])  # noqa: NPY002
def test_what_draws_on_the_cpu_is_not_recorded(device: str, draw: Callable[[], Any]) -> None:
    """A graph would draw the same for ever."""
    _, step = training(device)

    def drawing(x: Tensor, y: Tensor) -> Tensor:
        draw()
        return step(x, y)

    static = cuda_graph.Static(drawing)
    for x, y in batches(device, (16,) * 6):
        static(x, y)
    assert not static.is_recorded
    assert static.why_not is not None
    assert "draws random numbers on the CPU" in static.why_not


def test_what_cannot_be_recorded_runs_as_it_is(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(graphs, "capture", refuse)
    given = batches(device, (16,) * 6)
    alone, step = training(device)
    for x, y in given:
        step(x, y)
    network, step = training(device)
    static = cuda_graph.Static(step)
    for x, y in given:
        static(x, y)
    assert static.why_not == "it can't be recorded: operation not permitted when stream is capturing"
    torch.testing.assert_close(list(network.parameters()), list(alone.parameters()))


def test_gradients_are_those_of_the_latest_batch(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a batch of another shape, whose gradients lie elsewhere."""
    network, _ = training(device)
    weights = list(network.parameters())

    def stand_in(function: Callable[[], None], _: Any) -> Callable[[], None]:
        """As a graph does it: always into the same gradients, and without a word to the parameters."""
        function()
        recorded = static._gradients

        def replay() -> None:
            elsewhere = [weight.grad for weight in weights]
            function()
            for mine, weight, other in zip(recorded, weights, elsewhere):
                assert mine is not None
                assert weight.grad is not None
                mine.copy_(weight.grad)
                weight.grad = other
            static._gradients = recorded

        return replay

    if device == "cpu":
        monkeypatch.setattr(graphs, "capture", stand_in)

    def passes(x: Tensor, y: Tensor) -> None:
        network.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(network(x), y).backward()

    static = cuda_graph.Static(passes, network.parameters())
    for x, y in batches(device, (16, 16, 16, 16, 7, 16, 5, 16)):
        static(x, y)
        found = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        passes(x, y)
        torch.testing.assert_close(found, [parameter.grad for parameter in network.parameters()])
    assert static.is_recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("regularizer", [None, regularizers.Jacobian(weight=0.01, form="sum")])
@pytest.mark.parametrize("cross_entropy", [0.0, 1.0])
def test_fit_on_a_gpu_is_the_same_with_a_graph(
    regularizer: Any, cross_entropy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, a last batch of another shape, and BatchNorm's running statistics."""
    monkeypatch.setattr(cuda_graph, "_of_python", lambda: None)
    torch.manual_seed(0)
    x, y = torch.randn(100, 1, 8, 8), torch.randint(3, (100,))
    found = []
    for use in (False, True):
        torch.manual_seed(1)
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 3)
        )
        done = fit(
            network,
            (x, y),
            loss=losses.MarginLoss(at=("input", "2"), cross_entropy=cross_entropy),
            regularizers=[] if regularizer is None else [regularizer],
            optimizer=Sgd(lr=0.05, momentum=0.9),
            epochs=4,
            batch_size=16,
            accelerator="cuda",
            graph=use,
        )
        assert done.settings["CUDA graph"] == ("yes" if use else "no, since graph is False")
        found.append({name: value.cpu() for name, value in network.state_dict().items()})
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_graph_still_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "_of_python", lambda: None)
    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.randint(3, (64,))
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    loss = losses.MarginLoss(at=("input",))
    with pytest.raises(TrainingStopped, match=r"is not finite|are not finite"):
        fit(network, (x, y), loss=loss, optimizer=Sgd(lr=1e30), epochs=8, batch_size=8, accelerator="cuda")
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    bad = y.clone()
    bad[-1] = 3
    with pytest.raises(ValueError, match=r"3 at index|labels has 3"):
        fit(network, (x, bad), loss=loss, optimizer=Sgd(lr=0.1), epochs=8, batch_size=8, accelerator="cuda")


def test_on_a_cpu_nothing_is_recorded() -> None:
    seen: list[Tensor] = []
    static = cuda_graph.Static(lambda x, _: seen.append(x))
    x, y = torch.rand(3, 2), torch.zeros(3)
    for _ in range(6):
        static(x, y)
    assert len(seen) == 6
    assert all(one is x for one in seen)
    assert not static.is_recorded


def test_why_fit_records_nothing() -> None:
    """One sentence each, also where there is no GPU."""
    x, y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
    place = Place(device=torch.device("cpu"), dtype=None)
    samples = source((x, y), batch_size=2, seed=0, place=place)
    loader = source(DataLoader(TensorDataset(x, y)), batch_size=2, seed=0, place=place)
    loss = losses.MarginLoss()

    def said(given: Source = samples, **settings: Any) -> str | None:
        task = object.__new__(Task)  # of which only these are looked at
        vars(task).update({"graph": True, "loss": loss, "regularizers": (), **settings})
        return cuda_graph.why_no_graph(task, given, place)

    assert "graphs need CUDA" in str(said())
    assert said(graph=False) == "graph is False"
    assert "not tensors" in str(said(loader))
    assert "not of this package" in str(said(loss=lambda *_: x))
    assert "not of this package" in str(said(regularizers=(lambda *_: x,)))
