"""Independent random streams, one per purpose and seed.

Every step of a training seeds the global generators from (seed, step, process). A resumed training then draws the same
numbers as an uninterrupted one without a stored generator state, for torch, NumPy and Python's `random`, on any device.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch

from widemargin.checks import check_seed


def generator(purpose: str, seed: int) -> torch.Generator:
    """A CPU generator seeded with SHA-256(purpose, seed).

    The purpose is part of the seed, so that `holdout` and `flip_labels` do not draw the same permutation for seed 0.
    Independent of `torch.manual_seed`.
    """
    check_seed(seed)
    digest = hashlib.sha256(f"widemargin.data {purpose} {seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


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
