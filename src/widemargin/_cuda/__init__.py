"""CUDA graphs, and Triton kernels where Triton is installed."""

from __future__ import annotations

import functools
import importlib.util


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed, as it is with CUDA builds of torch."""
    return importlib.util.find_spec("triton") is not None
