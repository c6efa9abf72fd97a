"""How many networks at once: the fastest by measuring, as many as memory allows, halved where that was wrong."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from population.one_by_one import BN_CNN, MLP, difference, networks, samples
from widemargin import losses, population
from widemargin.population import chunks, run
from widemargin.population.batches import samples_of
from widemargin.population.chunks import Chunk, choose
from widemargin.population.run import PopulationConfig
from widemargin.training import SGD
from widemargin.training.schedules import Constant

CPU = torch.device("cpu")


def plan(count: int = 64, *, kind: str = MLP, steps: int = 10_000) -> PopulationConfig:
    return PopulationConfig(
        networks=networks(kind, 2) * (count // 2),
        data=samples_of(samples(), count, CPU, torch.float64),
        losses=[losses.CrossEntropy()] * count,
        optimizers=[SGD(lr=0.1)] * count,
        seeds=list(range(count)),
        regularizers=(),
        steps=steps,
        batch_size=8,
        schedule=Constant(),
        until=None,
        device=CPU,
    )


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_remembered", {})


def timed(monkeypatch: pytest.MonkeyPatch, times: dict[Any, float]) -> list[tuple[int, str]]:
    """Let a step take what `times` says, of a size or of a size and form."""
    asked = []

    def fake(_: PopulationConfig, size: int, form: str) -> float:
        asked.append((size, form))
        return times.get((size, form), times.get(size, 1.0))

    monkeypatch.setattr(chunks, "seconds", fake)
    return asked


@pytest.mark.parametrize(
    ("times", "chosen", "asked"),
    [
        ({1: 4.0, 4: 3.0, 16: 2.0, 64: 1.0}, 64, [1, 4, 16, 64]),
        ({1: 4.0, 4: 2.0, 16: 5.0, 64: 1.0}, 4, [1, 4, 16]),  # clearly worse: no further
        ({1: 4.0, 4: 3.95, 16: 6.1}, 1, [1, 4, 16]),  # so little gain that it may be none
        ({1: 4.0, 4: 3.0, 16: 3.1, 64: 1.0}, 64, [1, 4, 16, 64]),
        ({1: 1.0, 4: 1.05, 16: 1.6, 64: 0.5}, 1, [1, 4, 16]),
    ],
)
def test_the_fastest_is_chosen_and_remembered(
    monkeypatch: pytest.MonkeyPatch, times: dict[int, float], chosen: int, asked: list[int]
) -> None:
    seen = timed(monkeypatch, times)
    for _ in range(2):
        assert choose(plan(), size=None, convolutions=None) == Chunk(size=chosen, convolutions="grouped")
    assert [size for size, _ in seen] == asked
    choose(plan(steps=10_001), size=None, convolutions=None)
    assert len(seen) == len(asked)
    choose(plan(62), size=None, convolutions=None)
    assert len(seen) > len(asked)


def test_the_faster_form_of_convolutions_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = timed(monkeypatch, {1: 4.0, (4, "matmul"): 3.5, (4, "grouped"): 3.0, (16, "matmul"): 1.0, 16: 2.0, 64: 9.0})
    assert choose(plan(kind=BN_CNN), size=None, convolutions=None) == Chunk(size=16, convolutions="matmul")
    assert seen[:3] == [(1, "grouped"), (4, "grouped"), (4, "matmul")]
    assert choose(plan(kind=BN_CNN), size=4, convolutions=None) == Chunk(size=4, convolutions="grouped")
    assert choose(plan(kind=BN_CNN), size=5, convolutions="matmul") == Chunk(size=5, convolutions="matmul")
    assert choose(plan(kind=BN_CNN), size=999, convolutions="grouped") == Chunk(size=64, convolutions="grouped")


def test_a_short_training_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = timed(monkeypatch, {})
    assert choose(plan(steps=1), size=None, convolutions=None) == Chunk(size=16, convolutions="grouped")
    assert choose(plan(4, steps=1), size=None, convolutions=None) == Chunk(size=4, convolutions="grouped")
    assert not seen
    choose(plan(steps=10), size=None, convolutions=None)
    assert seen == [(1, "grouped"), (4, "grouped")]


def test_measuring_stops_where_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(_: PopulationConfig, size: int, form: str) -> float:
        if size > 4 or form == "matmul":
            raise torch.OutOfMemoryError("no more")
        return 1.0 / size

    monkeypatch.setattr(chunks, "seconds", fake)
    assert choose(plan(kind=BN_CNN), size=None, convolutions=None) == Chunk(size=4, convolutions="grouped")
    monkeypatch.setattr(chunks, "seconds", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        choose(plan(kind=MLP), size=None, convolutions=None)


def test_no_more_networks_than_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, {1: 4.0, 4: 3.0, 16: 2.0, 64: 1.0})
    one = plan()
    weights = 8 * (36 * 8 + 8 + 8 * 6 + 6 + 6 * 3 + 3)
    activations = 8 * 8 * (36 + 36 + 8 + 8 + 6 + 6 + 3)  # the input, and what each of the six layers gives
    need = 5 * weights + 3 * activations
    monkeypatch.setattr(chunks, "available", lambda _: 10 * need / 0.8 + 1)
    assert chunks.most_in_memory(one) == 10
    assert choose(one, size=None, convolutions=None).size == 10
    monkeypatch.setattr(chunks, "available", lambda _: 0.0)
    assert chunks.most_in_memory(one) == 1


def test_free_memory_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "MemTotal: 9 kB\nMemAvailable:   2048 kB\n")
    assert chunks.available(CPU) == 2048 * 1024
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "nothing")
    assert chunks.available(CPU) > 2**28


@pytest.mark.parametrize("kind", [MLP, BN_CNN])
def test_measured_for_real_it_is_one_of_the_sizes(kind: str) -> None:
    one = plan(4, kind=kind, steps=200)
    state = {k: v.clone() for k, v in one.networks[0].state_dict().items()}
    assert choose(one, size=None, convolutions=None).size in (1, 4)
    assert all(torch.equal(v, state[k]) for k, v in one.networks[0].state_dict().items())


def test_out_of_memory_halves_the_chunk_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    given, data = networks(BN_CNN, 7), samples()
    setting: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "steps": 3, "batch_size": 8}
    expected = population.fit(given, data, chunk=1, **setting)
    advance = run.PopulationRun.advance
    failed: list[weakref.ref[run.PopulationRun]] = []

    def tight(self: run.PopulationRun) -> None:
        assert all(attempt() is None for attempt in failed)  # its memory is free before the next attempt
        if len(self.members) > 2 and self.step == 2:
            failed.append(weakref.ref(self))
            raise torch.OutOfMemoryError("CUDA out of memory")
        advance(self)

    monkeypatch.setattr(run.PopulationRun, "advance", tight)
    with pytest.warns(UserWarning, match="networks at once do not fit in memory") as said:
        found = population.fit(given, data, chunk=7, convolutions="grouped", **setting)
    assert [str(w.message) for w in said] == [
        "7 networks at once do not fit in memory, continuing with 3",
        "3 networks at once do not fit in memory, continuing with 1",
    ]
    assert found.chunks == [1] * 7
    assert max(difference(a, b) for a, b in zip(found.networks, expected.networks)) < 1e-10

    def none(_: run.PopulationRun) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(run.PopulationRun, "advance", none)
    with pytest.raises(torch.OutOfMemoryError):
        population.fit(given, data, chunk=1, **setting)


def test_any_other_error_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(run.PopulationRun, "advance", broken)
    with pytest.raises(RuntimeError, match="out of luck"):
        population.fit(networks(MLP), samples(), loss=losses.CrossEntropy(), optimizer=SGD(lr=0.1), steps=3, chunk=2)


def test_bars_of_networks_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    setting: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "steps": 3, "chunk": 2}
    population.fit(networks(MLP), samples(), progress=True, **setting)
    said = capsys.readouterr().err
    assert "Networks" in said
    assert "3/3" in said
    population.fit(networks(MLP), samples(), progress=False, **setting)
    assert capsys.readouterr().err == ""
