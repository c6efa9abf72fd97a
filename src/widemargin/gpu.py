"""What is there on a GPU, and what it is doing."""

from __future__ import annotations

import functools
import importlib.util

import torch


@functools.cache
def has_triton() -> bool:
    """Whether kernels can be written here; torch brings Triton along where it knows CUDA."""
    return importlib.util.find_spec("triton") is not None


def is_recording(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded on that device, so that there are no numbers to look at."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
