"""Real Ray on this machine: killed workers, trials that are given up, addresses where nothing answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from studies import deadly
from subprocesses import SOURCE, TESTS
from widemargin.studies import ray_cluster
from widemargin.studies.trial import TrialContext


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_where_nothing_listens_is_told_at_once(address: str) -> None:
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=f"--address is '{address}', where nothing answers"):
        ray_cluster.connect(None, address)
    assert time.monotonic() - start < 15


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="--address is 'here:port', expected host:port"):
        ray_cluster.connect(None, "here:port")


def test_an_address_where_something_else_answers_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray waits two minutes for such an address; so does this one."""
    over = threading.Event()
    monkeypatch.setattr(ray_cluster, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"--address is '{address}', where no Ray cluster has answered"):
            ray_cluster.connect(SimpleNamespace(init=lambda **_: over.wait(60)), address)
    over.set()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    path = {"PYTHONPATH": f"{SOURCE}:{TESTS}"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": path})
    yield ray
    ray.shutdown()


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "timed", deadly.timed)


@pytest.mark.filterwarnings("ignore")
def test_killed_workers_of_ray_are_replaced(ray: Any, tmp_path: Path) -> None:
    trials = [deadly.trial(does, seed, tmp_path) for seed in range(3) for does in ("works", "dies once")]
    found = ray_cluster.on_ray(trials, TrialContext(), address=None, gpus=0.0)
    assert {trial.key: row for trial, row, _ in found} == {trial.key: {"accuracy": trial.seed / 10} for trial in trials}


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_ray_gives_up_is_one_sentence_after_the_finished_ones(ray: Any, tmp_path: Path) -> None:
    trials = [deadly.trial("works", 0, tmp_path), deadly.trial("dies", 1, tmp_path)]
    found = ray_cluster.on_ray(trials, TrialContext(), address=None, gpus=0.0)
    assert next(found)[1] == {"accuracy": 0.0}
    with pytest.raises(ChildProcessError, match=r"a trial of E3 \(dies, seed 1\).*Ray gave it up.*kept"):
        next(found)


@pytest.mark.filterwarnings("ignore")
def test_an_exception_of_a_trial_on_ray_is_its_own(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^seed 1 is odd$"):
        list(ray_cluster.on_ray([deadly.trial("fails", 1, tmp_path)], TrialContext(), address=None, gpus=0.0))
