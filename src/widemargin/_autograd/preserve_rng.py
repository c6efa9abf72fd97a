"""Global random state, restored after a `with` block."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
R = TypeVar("R")

_RNG_LOCK = threading.RLock()


@contextmanager
def preserve_rng(device: torch.device) -> Iterator[None]:
    """Restore the global generators of torch, NumPy and Python after the `with` block."""
    devices = [device] if device.type in ("cuda", "mps") else []
    fork = torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda")
    with _RNG_LOCK:
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        fork.__enter__()
    try:
        yield
    finally:
        with _RNG_LOCK:
            fork.__exit__(None, None, None)
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def with_rng_lock(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` under a global lock, since it uses the global random generators."""

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _RNG_LOCK:
            return function(*args, **kwargs)

    return locked
