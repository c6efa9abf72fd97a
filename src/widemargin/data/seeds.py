"""A stream of random numbers of its own for each purpose, independent of the seed that a training sets."""

from __future__ import annotations

import hashlib

import torch


def generator(purpose: str, seed: int) -> torch.Generator:
    """A CPU generator seeded with SHA-256(purpose, seed).

    The purpose is part of the seed: were holding out and flipping to draw the same permutation for seed 0, then the
    samples held out would be the flipped ones. `torch.manual_seed` neither changes these numbers nor is changed.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed is {seed!r}, expected an integer")
    digest = hashlib.sha256(f"widemargin.data {purpose} {seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
