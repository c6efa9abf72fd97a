"""Buffers and attributes that a forward pass of a network changes, the same for a second pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_CHANGED: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
"""The names of the buffers that forward passes of a network have changed so far."""


class RepeatedState:
    """The state of a network before a forward pass, for a second one, whose own changes are undone.

    It covers buffers, such as running scales and the vectors of spectral norms, but not those of BatchNorm and
    InstanceNorm, and attributes of modules that are not PyTorch's own, such as counters.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        named = [(name, module) for name, module in network.named_modules() if not isinstance(module, _NormBase)]
        self._own = [module for _, module in named if not type(module).__module__.startswith(("torch.", "widemargin."))]
        self._buffers = {
            f"{name}.{key}": (module, key)
            for name, module in named
            if not isinstance(module, torch.jit.ScriptModule)
            for key in module._buffers
        }
        self._before: dict[str, Tensor | None] = {}

    @property
    def generators(self) -> list[torch.Generator]:
        """The random generators that modules hold as attributes."""
        return [value for module in self._own for value in vars(module).values() if isinstance(value, torch.Generator)]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Keep the state before the `with` block, a forward pass."""
        known = _CHANGED.get(self._network)
        kept = (
            self._buffers if known is None else [name for name in self._buffers if name in known or self._is_own(name)]
        )
        copies = {name: _copy(self._buffer(name)) for name in kept}
        before = {name: self._seen(name) for name in self._buffers}
        yield
        changed = {name for name in before if self._seen(name) != before[name]}
        _CHANGED[self._network] = changed | (known or set())
        changed |= {name for name in kept if self._is_own(name)}
        # A buffer that changes for the first time in a later pass has no copy.
        self._before = {name: copies[name] if name in copies else _copy(self._buffer(name)) for name in changed}

    @contextmanager
    def reused(self) -> Iterator[None]:
        """Set the state that was kept inside the `with` block, a forward pass, and undo its changes afterwards."""
        buffers = {name: self._buffer(name) for name in self._before}
        attributes = [(module, dict(vars(module))) for module in self._own]
        for name, value in self._before.items():
            self._set(name, _copy(value))
        try:
            yield
        finally:
            for name, buffer in buffers.items():
                self._set(name, buffer)
            for module, values in attributes:
                _restore(module, values)

    def _is_own(self, name: str) -> bool:
        """Whether it may change unnoticed: functions such as `F.batch_norm` do not count a change of their buffers."""
        buffer, kind = self._buffer(name), type(self._buffers[name][0])
        return buffer is not None and buffer.is_floating_point() and not kind.__module__.startswith("torch.")

    def _seen(self, name: str) -> tuple[int, int]:
        """The identity and the version of a buffer, which tell whether it has changed."""
        buffer = self._buffer(name)
        return id(buffer), -1 if buffer is None or buffer.is_inference() else buffer._version

    def _buffer(self, name: str) -> Tensor | None:
        module, key = self._buffers[name]
        return module._buffers[key]

    def _set(self, name: str, buffer: Tensor | None) -> None:
        module, key = self._buffers[name]
        module._buffers[key] = buffer


def _copy(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.detach().clone()


def _restore(module: nn.Module, values: dict[str, Any]) -> None:
    """Attributes of the module as they were; new ones stay."""
    own = vars(module)
    for name, value in values.items():
        if own.get(name) is not value:
            own[name] = value
