"""Random streams of many networks, one for each.

A stream is a function of its key and of the position of the number, by the mixing function of SplitMix64 (Steele et al.
2014): no state, the same numbers on every device and whichever networks are trained beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from widemargin.training.batches import seed_all

_GOLDEN = 0x9E3779B97F4A7C15


def keys(seeds: Sequence[int], *purpose: object) -> Tensor:
    """A 64-bit number for every seed, by SHA-256 of the seed and the purpose."""
    digests = (hashlib.sha256(repr((seed, *purpose)).encode()).digest() for seed in seeds)
    return torch.tensor([int.from_bytes(one[:8], "big", signed=True) for one in digests], dtype=torch.int64)


def keep(key: Tensor, number: int, shape: Sequence[int], p: float) -> Tensor:
    """A mask of `shape`, True with probability 1 − p: the `number`-th of the stream of `key`, which is one integer.

    Under `vmap` every network has a key of its own.
    """
    count = int(torch.Size(shape).numel())
    position = torch.arange(1, count + 1, device=key.device)
    bits = _mix(_mix(key + _wrap(_GOLDEN * (number + 1))) + position * _wrap(_GOLDEN))
    return (_shift(bits, 11) >= round(p * 2**53)).view(*shape)  # 53 bits: a number in [0, 1) as float64 has them


class Streams:
    """The states of the global generators of every network in one step, as in `fit` with its seed.

    A network that draws again in the same step continues its stream; `states` has those that have drawn.
    """

    def __init__(self, seeds: Sequence[int], step: int, device: torch.device) -> None:
        self.seeds, self.step, self.device = seeds, step, device
        self.states: dict[int, tuple[Tensor, Tensor | None]] = {}

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Draw as network `number` inside the `with` block."""
        on_gpu = self.device.type == "cuda"
        if number in self.states:
            state, state_on_gpu = self.states[number]
            torch.set_rng_state(state)
            if state_on_gpu is not None:
                torch.cuda.set_rng_state(state_on_gpu, self.device)
        else:
            seed_all(self.device, self.seeds[number], "step", self.step, 0)
        yield
        self.states[number] = (torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if on_gpu else None)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _wrap(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _wrap(0x94D049BB133111EB)
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    return (z >> by) & ((1 << (64 - by)) - 1)  # torch shifts signed numbers with their sign


def _wrap(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number
