"""The same rows, whichever engine."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from studies import tiny
from studies.tiny import Counting
from widemargin.studies import engines
from widemargin.studies.trial import Trial, TrialContext

# Shapes are checked in the tests of the losses and networks; here that would take most of the time.
pytestmark = pytest.mark.usefixtures("untyped")
TRIALS = [tiny.trial(seed=seed, **{"data.flips": flips}) for seed in (0, 1) for flips in (0.0, 0.3)]
TRIALS.append(tiny.trial(steps=2))  # of another length, so of another population


def rows(engine: Any) -> dict[str, dict[str, Any]]:
    done = list(engine(TRIALS, TrialContext()))
    assert all(seconds > 0 for _, _, seconds in done)
    assert len(done) == len(TRIALS)
    return {trial.key: row for trial, row, _ in done}


def agree(found: dict[str, dict[str, Any]], alone: dict[str, dict[str, Any]]) -> None:
    assert found.keys() == alone.keys()
    for key, row in alone.items():
        assert found[key].pop("loss") == pytest.approx(row["loss"], rel=1e-7)
        assert found[key] == {k: v for k, v in row.items() if k != "loss"}


def test_populations_and_processes_give_the_rows_of_one_by_one() -> None:
    alone = rows(engines.engine("one-by-one"))
    agree(rows(engines.engine("population")), alone)
    agree(rows(lambda trials, context: engines.populations(trials, context, at_once=3)), alone)
    agree(rows(engines.engine("workers", count=2)), alone)


def test_ray_gives_the_rows_of_one_by_one() -> None:
    ray = pytest.importorskip("ray")
    try:
        agree(rows(engines.engine("ray")), rows(engines.engine("one-by-one")))
    finally:
        ray.shutdown()


class FakeRay:
    """As much of Ray as the engine uses, in this process."""

    def __init__(self) -> None:
        self.started: dict[str, Any] | None = None
        self.asked: dict[str, Any] = {}
        self.cancelled = 0
        self.exceptions = SimpleNamespace(RayError=RuntimeError)

    def is_initialized(self) -> bool:
        return self.started is not None

    def init(self, **settings: Any) -> None:
        self.started = settings

    def remote(self, **asked: Any) -> Any:
        self.asked = asked
        return lambda function: SimpleNamespace(remote=lambda *arguments: lambda: function(*arguments))

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def wait(self, running: list[Any], num_returns: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        if timeout == 0:
            return [], running
        return running[-num_returns:], running[:-num_returns]  # in another order than they were given

    def get(self, one: Any) -> Any:
        return one()

    def cancel(self, one: Any, force: bool) -> None:
        self.cancelled += 1


def test_the_engine_asks_ray_for_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    agree(rows(engines.engine("ray", address="auto")), rows(engines.engine("one-by-one")))
    assert ray.started is not None
    assert ray.started["address"] == "auto"
    assert ray.asked == {"num_cpus": 1, "num_gpus": 0.0}
    engine = engines.engine("ray", count=4, device="cuda")(TRIALS, TrialContext())
    next(iter(engine))
    engine.close()  # type: ignore[attr-defined]
    assert ray.asked == {"num_cpus": 1, "num_gpus": 0.25}
    assert ray.cancelled == 4 - 1  # twice as many as there are processors were under way


def test_populations_leave_tasks_alone_that_know_none(counting: Counting) -> None:
    trials = [
        Trial(
            task="counting",
            version=1,
            stage="search",
            settings={"x": x, "noise": 0.0},
            seed=0,
            study="E3",
            arm="a",
            scale="smoke",
        )
        for x in (1.0, 2.0)
    ]
    assert [row["validation"] for _, row, _ in engines.populations(trials, TrialContext())] == [1.0, 2.0]


def test_a_missing_ray_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'widemargin\[ray\]'"):
        list(engines.engine("ray")(TRIALS, TrialContext()))


def test_an_unknown_engine() -> None:
    with pytest.raises(ValueError, match="engine is 'steam'"):
        engines.engine("steam")  # type: ignore[arg-type]
