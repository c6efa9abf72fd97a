"""What is there on a GPU, and what it is doing."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@functools.cache
def has_triton() -> bool:
    """Whether kernels can be written here; torch brings Triton along where it knows CUDA."""
    return importlib.util.find_spec("triton") is not None


def is_recording(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded on that device, so that there are no numbers to look at."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@contextmanager
def on_the_side(device: torch.device) -> Iterator[None]:
    """What is launched inside the `with` block runs on a stream of its own, as torch asks of what a recording repeats.

    It is the same stream for all: cuBLAS takes memory for each one that it sees, 32 MiB on an H200, and keeps it.
    """
    side, now = _side(device), torch.cuda.current_stream(device)
    side.wait_stream(now)
    with torch.cuda.stream(side):
        yield
    now.wait_stream(side)


@functools.cache
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
