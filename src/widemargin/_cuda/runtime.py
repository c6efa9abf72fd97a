"""CUDA runtime: whether Triton is installed, graph capture, and a side stream."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed, as it is with CUDA builds of torch."""
    return importlib.util.find_spec("triton") is not None


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured on `device`, so that tensors have no values yet."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Launch kernels inside the `with` block on a side stream, as torch requires of the warm-up of a CUDA graph.

    There is one side stream per device: cuBLAS keeps a workspace for every stream (32 MiB on an H200). No effect on
    other devices than GPUs.
    """
    if device.type != "cuda":
        yield
        return
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
