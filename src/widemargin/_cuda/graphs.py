"""CUDA graphs: capture of a function, and the memory that several graphs share."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

WARM = 3
"""Steps without a graph before one is recorded: libraries choose their algorithms and workspaces in those."""


def why_not(device: torch.device) -> str | None:
    """Why there can't be graphs on this device, or None where there can be."""
    return None if device.type == "cuda" else f"the networks are trained on {device}, and graphs need CUDA"


def capture(function: Callable[[], None], pool: Any) -> Callable[[], None]:
    """What repeats all that `function` does on the device; it runs through it once, without doing it."""
    graph = torch.cuda.CUDAGraph()
    collects = gc.isenabled()
    gc.collect()
    gc.disable()  # the end of an older graph, while this one is recorded, would spoil it
    try:
        with torch.cuda.graph(graph, pool=pool):
            function()
    finally:
        if collects:
            gc.enable()
    return graph.replay


def memory(device: torch.device) -> Any:
    """Memory that graphs can share; None where there are none."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None
