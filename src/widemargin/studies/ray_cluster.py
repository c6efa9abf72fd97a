"""Trials on Ray, here or on a cluster."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from widemargin._io.optional import import_optional
from widemargin.studies.trial import Claim, Trial, TrialContext, unclaimed
from widemargin.studies.workers import Done, timed

SECONDS = 20.0
"""Connection timeout in seconds."""


def on_ray(
    trials: Sequence[Trial], context: TrialContext, claim: Claim = unclaimed, *, address: str | None, gpus: float
) -> Iterator[Done]:
    """On Ray, here or on the cluster at `address`; each trial takes one processor and `gpus` of a GPU.

    Twice as many trials as there are processors are handed to Ray at a time: the others are left to other processes
    that run the same study. Ray restarts a trial whose process has died.
    """
    ray: Any = import_optional("ray", "--engine ray")
    if not ray.is_initialized():
        connect(ray, address)
    remote: Any = ray.remote(num_cpus=1, num_gpus=gpus)(timed)
    waiting = (trial for trial in trials if claim(trial))
    running: dict[Any, Trial] = {}
    try:
        while True:
            most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while len(running) < most and (trial := next(waiting, None)) is not None:
                running[remote.remote(trial, context)] = trial
            if not running:
                return
            first, others = ray.wait(list(running), num_returns=1)
            also, _ = ray.wait(others, num_returns=len(others), timeout=0) if others else ([], [])
            failures = []
            for one in (*first, *also):
                trial = running.pop(one)
                try:
                    done: Done = ray.get(one)
                except ray.exceptions.RayError as error:
                    failures.append(_reason(error, trial))
                else:
                    yield done
            if failures:
                raise failures[0]
    finally:
        for one in running:
            ray.cancel(one, force=True)


def connect(ray: Any, address: str | None) -> None:
    """Connect to the cluster at `address`, or start one here; a `ConnectionError` where nothing answers in time."""
    named = address or os.environ.get("RAY_ADDRESS")
    _check_reachable(named)
    failed: list[BaseException] = []

    def begin() -> None:
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        except BaseException as error:
            failed.append(error)

    if named in (None, "local"):
        begin()
    else:
        # In a thread: ray.init can't be interrupted where something other than Ray answers.
        thread = threading.Thread(target=begin, daemon=True)
        thread.start()
        thread.join(SECONDS)
        if thread.is_alive():
            raise ConnectionError(f"--address is {named!r}, where no Ray cluster has answered within {SECONDS:g} s")
    if failed:
        reason = str(failed[0]).partition("\n")[0]
        raise ConnectionError(f"--address is {named!r}, which Ray can't use: {reason}") from failed[0]


def _check_reachable(address: str | None) -> None:
    """Raise where no process listens at a host:port."""
    parts = urlsplit(address if address and "://" in address else f"//{address or ''}")
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"--address is {address!r}, expected host:port: {error}") from error
    if parts.hostname is None or port is None:
        return  # "auto" or "local"
    try:
        socket.create_connection((parts.hostname, port), timeout=10).close()
    except OSError as error:
        raise ConnectionError(f"--address is {address!r}, where nothing answers: {error}") from error


def _reason(error: Exception, trial: Trial) -> Exception:
    """The trial's own exception, or a one-line error that Ray has given it up."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    said = " ".join(str(error).split())[:200]
    return ChildProcessError(
        f"a trial of {trial.study} ({trial.arm}, seed {trial.seed}) has no result, since Ray gave it up: "
        f"{type(error).__name__}, {said}; finished trials are kept"
    )
