"""Trials in several processes of this machine; a dead process is replaced, and all end with their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import TypeAlias

from widemargin.studies import tasks
from widemargin.studies.rows import Row
from widemargin.studies.trial import Claim, Trial, TrialContext, unclaimed

Done: TypeAlias = tuple[Trial, Row, float]
"""A trial, what it measured, and the seconds it took (its share of them, where several ran together)."""

RETRIES = 3
"""Maximum number of restarts of a trial whose process was killed."""

_SPAWN = multiprocessing.get_context("spawn")


def workers(trials: Sequence[Trial], context: TrialContext, claim: Claim = unclaimed, *, count: int) -> Iterator[Done]:
    """Run trials in `count` processes, which share a GPU if there is one: a cheap way to fill it with small trainings.

    At most `count` trials run at once. Closing the iterator ends the processes. A process that is killed, for example
    for lack of memory, is replaced and its trial restarted, at most `RETRIES` times; then it is an error.
    """
    waiting = (trial for trial in trials if claim(trial))
    processes = [_Worker() for _ in range(min(count, len(trials)))]
    deaths: dict[str, int] = {}
    try:
        for worker in processes:
            worker.give(next(waiting, None), context)
        while busy := [worker for worker in processes if worker.trial is not None]:
            wait([*(worker.pipe for worker in busy), *(worker.process.sentinel for worker in busy)])
            failures: list[Exception] = []
            for worker in busy:
                trial, answer = worker.trial, worker.answer()
                assert trial is not None
                if answer is None:
                    continue
                if isinstance(answer, Exception):
                    if isinstance(answer, _DiedError) and deaths.setdefault(trial.key, 0) < RETRIES:
                        deaths[trial.key] += 1
                        worker.restart()
                        worker.give(trial, context)
                    else:
                        failures.append(answer)
                        worker.trial = None
                    continue
                if not failures:
                    worker.give(next(waiting, None), context)
                yield answer
            if failures:
                raise failures[0]
    finally:
        for worker in processes:
            worker.end()


class _DiedError(ChildProcessError):
    pass


class _Worker:
    """A process that runs one trial after another."""

    def __init__(self) -> None:
        self.trial: Trial | None = None
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()

    def give(self, trial: Trial | None, context: TrialContext) -> None:
        """Send `trial` to the process; None leaves it idle."""
        self.trial = trial
        if trial is not None:
            with contextlib.suppress(BrokenPipeError):  # the process has died: `answer` returns the error
                self.pipe.send((trial, context))

    def answer(self) -> Done | Exception | None:
        """The result or the error of its trial; None while it runs."""
        try:
            if self.pipe.poll():
                found: Done | Exception = self.pipe.recv()
                return found
        except (EOFError, ConnectionError):
            self.process.join()
        if self.process.is_alive() or self.trial is None:
            return None
        self.process.join()
        code, one = self.process.exitcode or 0, self.trial
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return _DiedError(
            f"a trial of {one.study} ({one.arm}, seed {one.seed}) has no result: its process was {how}, {RETRIES + 1} "
            "times, perhaps for lack of memory; finished trials are kept"
        )

    def restart(self) -> None:
        """Replace the process after it has died."""
        self.pipe.close()
        self._start()

    def end(self) -> None:
        """End the process; a running trial is terminated."""
        self.pipe.close()
        if self.trial is not None:
            self.process.terminate()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection) -> None:
    """Run the trials that come through the pipe, until it is closed or the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the parent ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _take_one_thread()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            trial, context = pipe.recv()
            try:
                answer: Done | Exception = timed(trial, context)
            except Exception as error:
                answer = _sendable(error)
            pipe.send(answer)


def timed(trial: Trial, context: TrialContext) -> Done:
    """One trial and its seconds."""
    start = time.monotonic()
    row = tasks.find(trial.task).run(trial, context)
    return trial, row, time.monotonic() - start


def _take_one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which not every task does
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # skips the cleanup: nobody waits for the result


def _sendable(error: Exception) -> Exception:
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # safe: this process has pickled it itself
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
