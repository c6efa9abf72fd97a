"""Global random state, restored after a `with` block."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def preserve_rng(device: torch.device) -> Iterator[None]:
    """Restore the global generators of torch, NumPy and Python after the `with` block."""
    devices = [device] if device.type in ("cuda", "mps") else []
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
