"""Workers that are killed, that outlive nobody, and processes that share a study."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from studies import deadly, tiny
from subprocesses import child_env
from widemargin.studies import tasks, workers
from widemargin.studies.run import run
from widemargin.studies.trial import TrialContext


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import the module that knows the task, before the first trial comes."""
    monkeypatch.setattr(workers, "timed", deadly.timed)
    monkeypatch.setattr(workers, "_serve", serve)


def serve(pipe: object) -> None:
    """As `_serve`; this module has imported the one that knows the task."""
    _SERVE(pipe)  # type: ignore[arg-type]


_SERVE = workers._serve


def soon(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether something holds within some seconds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_worker_is_replaced_and_its_trial_begins_again(tmp_path: Path) -> None:
    trials = [deadly.trial(does, seed, tmp_path) for seed in (0, 1) for does in ("works", "dies once")]
    rows = {trial.key: row for trial, row, _ in workers.workers(trials, TrialContext(), count=2)}
    assert rows == {trial.key: {"accuracy": trial.seed / 10} for trial in trials}
    assert len(list(tmp_path.glob("dies once*"))) == 4


def test_a_trial_that_kills_every_worker_is_one_sentence_after_the_finished_ones(tmp_path: Path) -> None:
    trials = [deadly.trial("works", 0, tmp_path), deadly.trial("dies", 1, tmp_path)]
    found = workers.workers(trials, TrialContext(), count=2)
    assert next(found)[1] == {"accuracy": 0.0}
    with pytest.raises(ChildProcessError, match=r"a trial of E3 \(dies, seed 1\).*killed by SIGKILL.*kept"):
        next(found)
    assert len(list(tmp_path.glob("dies*"))) == 1 + workers.RETRIES


def test_an_exception_of_a_trial_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seed 1 is odd") as told:
        list(workers.workers([deadly.trial("fails", 1, tmp_path)], TrialContext(), count=1))
    assert any("deadly.py" in note for note in told.value.__notes__)  # where it happened


def test_whoever_stops_asking_ends_the_others(tmp_path: Path) -> None:
    trials = [deadly.trial("works", 0, tmp_path), deadly.trial("sleeps", 1, tmp_path)]
    found = workers.workers(trials, TrialContext(), count=2)
    next(found)
    assert soon(lambda: any(mark.read_text() for mark in tmp_path.glob("sleeps*")))
    (process,) = (int(mark.read_text()) for mark in tmp_path.glob("sleeps*"))
    found.close()  # type: ignore[attr-defined]
    assert not alive(process)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_workers_end_with_their_parent(number: signal.Signals, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from studies import test_workers as t; t.parent(Path(sys.argv[1]))"
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=child_env(OMP_NUM_THREADS="1"))
    try:
        assert soon(lambda: sum(bool(mark.read_text()) for mark in tmp_path.glob("sleeps*")) == 2, 120)
        processes = [int(mark.read_text()) for mark in tmp_path.glob("sleeps*")]
        assert all(map(alive, processes))
        child.send_signal(number)
        child.wait(30)
        assert soon(lambda: not any(map(alive, processes)), 10)
    finally:
        child.kill()
        child.wait()


def parent(folder: Path) -> None:
    """Runs trials that sleep by two workers."""
    vars(workers)["_serve"] = serve
    trials = [deadly.trial("sleeps", seed, folder) for seed in range(2)]
    list(workers.workers(trials, TrialContext(), count=2))


class Runner:
    """A process that runs the slow study, once it is told to."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "studies.deadly", str(folder)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=child_env(), stdin=pipe, stdout=pipe, text=True)

    def is_ready(self) -> bool:
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def said(self) -> str:
        return self.process.communicate(timeout=120)[0]


def noted(folder: Path) -> list[list[str]]:
    """The trials that began in `folder`, each with its process."""
    path = folder / "ran"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_two_processes_share_a_study(tmp_path: Path) -> None:
    both = [Runner(tmp_path) for _ in range(2)]
    ready = [one.is_ready() for one in both]
    for one in both:
        one.begin()
    assert [one.said() for one in both] == ["True 20 300.0\n"] * 2
    assert ready == [True, True]
    ran = noted(tmp_path)
    assert Counter(key for key, _ in ran).most_common(1)[0][1] == 1  # each trial once
    assert len(ran) == 20
    assert len({process for _, process in ran}) == 2  # by both


def test_a_study_goes_on_where_another_process_was_killed(tmp_path: Path) -> None:
    child = Runner(tmp_path)
    ready = child.is_ready()
    child.begin()
    began = soon(lambda: len(noted(tmp_path)) > 2)
    child.process.kill()
    child.said()
    assert ready
    assert began
    slow = deadly.Slow(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tasks, "find", lambda name: slow)
        found = run(tiny.study(), "budget", folder=tmp_path)
    assert (found["complete"], found["trials"]) == (True, 20)
    assert len(noted(tmp_path)) in (20, 21)  # the one that was under way ran twice
