"""cuDNN, switched off for recurrent layers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

_LOCK = threading.Lock()
_BEFORE: list[bool] = []
"""Whether cuDNN was on before the first of the blocks that run now, once for each of them."""


@contextmanager
def without_cudnn(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Recurrent layers without cuDNN, whose kernels have no backward pass in evaluation mode.

    The setting is that of all threads: the first one switches cuDNN off, and the last one restores it.
    """
    if not any(isinstance(module, nn.RNNBase) for module in modules):
        yield
        return
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else torch.backends.cudnn.enabled)
        torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                torch.backends.cudnn.enabled = before
