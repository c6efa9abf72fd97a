"""The random numbers of a training: every step has a stream of its own, seeded by (seed, step, process).

So a resumed training draws what an uninterrupted one would have drawn, without any state of a generator being stored:
on any device, in any process, for torch, numpy and Python's `random` alike. Measuring in between changes nothing.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def seed_all(device: torch.device, *key: object) -> None:
    """Seed torch on the CPU and on `device`, numpy's and Python's global generators with SHA-256 of `key`."""
    number = int.from_bytes(hashlib.sha256(repr(("widemargin.training", *key)).encode()).digest()[:8], "big") >> 1
    torch.default_generator.manual_seed(number)  # torch.manual_seed would format a stack trace for CUDA every time
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(number)
    elif device.type == "mps":
        torch.mps.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002  (users' transforms draw from the global generator)
