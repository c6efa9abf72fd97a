"""Independent random streams, one per purpose and seed."""

from __future__ import annotations

import hashlib

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
