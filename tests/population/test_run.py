"""Steps that are recorded and replayed are the same steps.

Without a GPU a stand-in records: it keeps the function and runs it again, on the tensors that a graph would read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from population.one_by_one import BN_CNN, CNN, MLP, difference, networks, samples, train
from widemargin import checks, losses, population, regularizers
from widemargin._cuda import graphs
from widemargin.data import Samples
from widemargin.population.run import PopulationRun
from widemargin.training import SGD, AdamW, Cosine, Exponential, Nero, RMSprop, TrainingStopped

MARGIN = losses.MarginLoss(penalty=losses.Hinge(gamma=2.0), at=("input", "2"), classes=2, cross_entropy=0.5)
SUM = regularizers.Jacobian(weight=0.2, form="sum")
CASES: dict[str, dict[str, Any]] = {
    "momentum": {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.05, momentum=0.9, weight_decay=0.01)},
    "rates": {"loss": losses.CrossEntropy(), "optimizer": [SGD(lr=lr) for lr in (0.05, 0.1)], "schedule": Cosine()},
    "adam": {"loss": MARGIN, "optimizer": AdamW(lr=0.01, weight_decay=0.1), "schedule": Cosine()},
    "rmsprop": {"loss": losses.Target(alpha=2.0), "optimizer": RMSprop(lr=0.001, momentum=0.5)},
    "nero": {
        "loss": [losses.Target(alpha=1.0), losses.Target(alpha=2.0)],
        "optimizer": [Nero(lr=0.02), Nero(lr=0.05)],
        "schedule": Exponential(factor=0.95),
    },
    "Jacobian": {"loss": losses.CrossEntropy(), "optimizer": Nero(lr=0.01), "regularizers": (SUM,)},
}
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":
        monkeypatch.setattr(graphs, "why_not", lambda _: None)
        monkeypatch.setattr(graphs, "capture", _runs_again)
    monkeypatch.setattr(graphs, "_python_rng_state", lambda: None)  # beartype, which looks on in tests, draws from it
    return str(request.param)


def _runs_again(function: Callable[[], None], _: object) -> Callable[[], None]:
    def replay() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "skips_values", lambda _: True)
            function()

    return replay


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that were replayed."""
    seen: list[int] = []

    advance = PopulationRun.advance

    def noted(self: PopulationRun) -> None:
        step, captured = self.step, self.captured
        advance(self)
        if any(passes.is_replayed for passes, _ in captured or self.captured):
            seen.append(step)

    monkeypatch.setattr(PopulationRun, "advance", noted)
    return seen


@pytest.mark.parametrize("kind", [MLP, CNN, BN_CNN])
@pytest.mark.parametrize("case", CASES)
def test_the_weights_of_one_by_one(kind: str, case: str, device: str, replays: list[int]) -> None:
    given, data = networks(kind, 2), samples()
    setting: dict[str, Any] = {"steps": 12, "batch_size": 8, **CASES[case]}
    done = population.fit(given, data, seeds=[3, 4], chunk=2, device=device, cuda_graph=True, **setting)
    assert replays == [4, 6, 7, 9, 10]  # 21 samples: every third batch is a smaller one
    assert done.no_cuda_graph is None
    for k, network in enumerate(done.networks):
        own = {n: v[k] if isinstance(v, list) else v for n, v in setting.items()}
        alone, _, loss = train(given[k], data, seed=3 + k, **own)
        assert difference(network, alone) < 1e-8
        assert done.losses[k] == pytest.approx(loss, rel=1e-8)


@pytest.mark.parametrize("kind", [MLP, BN_CNN])
def test_losses_that_take_turns_are_recorded_one_by_one(kind: str, device: str, replays: list[int]) -> None:
    given, data = networks(kind, 2), samples()
    setting: dict[str, Any] = {"optimizer": SGD(lr=0.05, momentum=0.9), "steps": 11, "batch_size": None}
    setting["loss"] = losses.WideMargin(strength=5.0, every=2)
    done = population.fit(given, data, seeds=[3, 4], chunk=2, device=device, cuda_graph=True, **setting)
    assert replays == [6, 7, 8, 9, 10]
    for k, network in enumerate(done.networks):
        assert difference(network, train(given[k], data, seed=3 + k, **setting)[0]) < 1e-8


@pytest.mark.parametrize("form", ["grouped", "matmul"])
def test_a_gradient_of_a_gradient_is_recorded(form: Any, device: str, replays: list[int]) -> None:
    """On a GPU it is if no graph of a step before is left: its nodes would wait for the stream that those ran on."""
    given, data = networks(CNN, 2), samples()
    setting: dict[str, Any] = {"steps": 12, "batch_size": 8, **CASES["Jacobian"]}
    done = population.fit(
        given, data, seeds=[3, 4], chunk=2, device=device, cuda_graph=True, convolutions=form, **setting
    )
    assert replays
    for k, network in enumerate(done.networks):
        assert difference(network, train(given[k], data, seed=3 + k, **setting)[0]) < 1e-8


def test_dropout_is_drawn_anew_in_every_step(device: str, replays: list[int]) -> None:
    given, data = networks(BN_CNN, 3, dropout=0.5), samples()
    setting: dict[str, Any] = {"loss": MARGIN, "optimizer": AdamW(lr=0.01), "steps": 10, "batch_size": None}
    with_graph = population.fit(given, data, chunk=3, device=device, cuda_graph=True, **setting)
    without = population.fit(given, data, chunk=3, device=device, cuda_graph=False, **setting)
    assert replays == [3, 4, 5, 6, 7, 8, 9]
    assert without.no_cuda_graph == "cuda_graph is False"
    assert max(difference(a, b) for a, b in zip(with_graph.networks, without.networks)) < 1e-12


@pytest.mark.parametrize("optimizer", [AdamW(lr=0.002), Nero(lr=0.005)])
def test_a_network_that_is_done_is_left_as_it_is(optimizer: Any, device: str, replays: list[int]) -> None:
    given, data = networks(BN_CNN, 4), [samples(seed=k % 2) for k in range(4)]
    setting: dict[str, Any] = {"steps": 60, "batch_size": None, "until": 0.35}
    targets = [losses.Target(alpha=1.0 - k / 5) for k in range(4)]
    done = population.fit(
        given, data, loss=targets, optimizer=optimizer, chunk=4, device=device, cuda_graph=True, **setting
    )
    assert len(set(done.steps)) > 2
    assert set(done.steps) & set(replays)
    for k, network in enumerate(done.networks):
        alone, steps, value = train(given[k], data[k], loss=targets[k], optimizer=optimizer, seed=k, **setting)
        assert done.steps[k] == steps
        assert difference(network, alone) < 1e-8
        assert done.losses[k] == pytest.approx(value)


def test_scores_that_are_not_finite_stop_it_with_the_step_and_the_network(device: str) -> None:
    setting: dict[str, Any] = {"loss": losses.Target(alpha=1.0), "steps": 200, "batch_size": None, "chunk": 3}
    rates = [SGD(lr=0.001), SGD(lr=300.0), SGD(lr=0.001)]
    said = []
    for recorded in (True, False):
        with pytest.raises(TrainingStopped, match="scores of network 1 are not finite") as stopped:
            population.fit(networks(MLP), samples(), optimizer=rates, device=device, cuda_graph=recorded, **setting)
        said.append(str(stopped.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("bad", [3, -1])
def test_a_wrong_label_is_found_before_it_is_recorded(bad: int, device: str) -> None:
    data = samples(60)
    y = data.y.clone()
    y[torch.randperm(60, generator=torch.Generator().manual_seed(0))[:1]] = bad
    with pytest.raises(ValueError, match=f"y has {bad} at index"):
        population.fit(
            networks(MLP), Samples(data.x, y), loss=losses.CrossEntropy(), optimizer=SGD(lr=0.1), steps=30,
            batch_size=2, chunk=3, device=device, cuda_graph=True,
        )  # fmt: skip


def test_where_it_is_off_it_says_why(device: str) -> None:
    class Own:
        def __call__(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return losses.CrossEntropy()(model, x, y)

    setting: dict[str, Any] = {"optimizer": SGD(lr=0.1), "batch_size": None, "chunk": 3, "device": device}
    own = population.fit(networks(MLP), samples(), loss=Own(), steps=40, **setting)
    assert own.no_cuda_graph == "a loss or regularizer is computed network by network, with generators of its own"
    short = population.fit(networks(MLP), samples(), loss=losses.CrossEntropy(), steps=10, **setting)
    assert short.no_cuda_graph == "the training is too short for one"
    with pytest.raises(RuntimeError, match="cuda_graph is True"):
        population.fit(networks(MLP), samples(), loss=Own(), steps=40, cuda_graph=True, **setting)


def test_what_can_not_be_recorded_runs_without(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    setting: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": AdamW(), "batch_size": 8, "chunk": 2}
    expected = population.fit(networks(MLP), samples(), steps=40, cuda_graph=False, device=device, **setting)
    monkeypatch.setattr(graphs, "capture", fails)
    found = population.fit(networks(MLP), samples(), steps=40, device=device, **setting)
    assert "operation not permitted when stream is capturing" in str(found.no_cuda_graph)
    assert max(difference(a, b) for a, b in zip(found.networks, expected.networks)) < 1e-12


def test_on_a_cpu_there_is_none() -> None:
    setting: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "steps": 3, "chunk": 2}
    assert "graphs need CUDA" in str(population.fit(networks(MLP), samples(), **setting).no_cuda_graph)
    with pytest.raises(ValueError, match="cuda_graph is True"):
        population.fit(networks(MLP), samples(), cuda_graph=True, **setting)
