"""Random numbers of a forward pass, drawn again in another: by generator states, or by kept masks in a CUDA graph."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from widemargin.checks import is_capturing
from widemargin.types import Args, Kwargs

_OWN_GENERATOR = ("cuda", "mps")
"""Devices with a generator beside the CPU's."""


class RandomStates(NamedTuple):
    """The states of all generators that a network draws from: torch's, Python's, NumPy's, and generators of its own."""

    torch: list[Tensor]
    python: tuple[Any, ...]
    numpy: dict[str, Any]
    own: list[Tensor]

    def equals(self, other: RandomStates) -> bool:
        """Whether nothing was drawn between the two."""
        tensors = zip([*self.torch, *self.own], [*other.torch, *other.own], strict=True)
        mine, its = self.numpy["state"], other.numpy["state"]
        is_same = self.python == other.python and mine["pos"] == its["pos"] and bool((mine["key"] == its["key"]).all())
        return is_same and all(torch.equal(a, b) for a, b in tensors)


def random_states(device: torch.device, own: Sequence[torch.Generator] = ()) -> RandomStates | None:
    """The states for a network on `device` with the generators `own`; None while a CUDA graph is captured."""
    if is_capturing(device):
        return None
    states = [torch.get_rng_state()]
    if device.type in _OWN_GENERATOR:
        states.append(torch.get_device_module(device).get_rng_state(device))
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    assert isinstance(numpy, dict)
    return RandomStates(states, random.getstate(), numpy, [generator.get_state() for generator in own])


@contextmanager
def with_random_states(
    states: RandomStates | None, device: torch.device, own: Sequence[torch.Generator] = ()
) -> Iterator[None]:
    """Set the generators to these states inside the `with` block, and restore them afterwards; None: leave them."""
    before = None if states is None else random_states(device, own)
    if states is None or before is None:
        yield
        return
    _set(states, device, own)
    try:
        yield
    finally:
        _set(before, device, own)


def _set(states: RandomStates, device: torch.device, own: Sequence[torch.Generator]) -> None:
    torch.set_rng_state(states.torch[0])
    for state in states.torch[1:]:
        torch.get_device_module(device).set_rng_state(state, device)
    random.setstate(states.python)
    np.random.set_state(states.numpy)  # noqa: NPY002
    for generator, state in zip(own, states.own, strict=True):
        generator.set_state(state)


class KeptMasks(TorchDispatchMode):
    """Random numbers of a pass that is captured in a CUDA graph, where random states can't be set.

    Below autograd and the functions of torch, so that it also sees what attention and recurrent layers draw.
    """

    def __init__(self) -> None:
        super().__init__()
        self._masks: list[Tensor] = []
        self._calls: Iterator[Tensor] | None = None

    def __bool__(self) -> bool:
        return bool(self._masks)

    @contextmanager
    def recorded(self, device: torch.device) -> Iterator[None]:
        """Draw new masks inside the `with` block, and keep them, if a CUDA graph is being captured."""
        self._masks, self._calls = [], None
        with self if is_capturing(device) else nullcontext():
            yield

    @contextmanager
    def reused(self, device: torch.device) -> Iterator[None]:
        """Use the kept masks inside the `with` block."""
        self._calls = iter(self._masks)
        with self if is_capturing(device) else nullcontext():
            yield

    def __torch_dispatch__(
        self, func: OpOverload, types: Args, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if not _is_random(func, args, kwargs):
            return func(*args, **kwargs)
        if func is aten.native_dropout.default:
            return self._dropout(*args, **kwargs)
        if func not in _DRAWS:
            name = func.overloadpacket.__name__
            raise RuntimeError(f"{name} draws random numbers, which two passes in a CUDA graph can't share")
        if self._calls is None:
            drawn = func(*args, **kwargs)
            self._masks.append(drawn.clone())
            return drawn
        return args[0].copy_(next(self._calls)) if func._schema.is_mutable else next(self._calls).clone()

    def _dropout(self, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if self._calls is not None:
            mask = next(self._calls)
            return input * mask * (1 / (1 - p)), mask
        out, mask = aten.native_dropout(input, p, train)
        self._masks.append(mask)
        return out, mask


aten = torch.ops.aten

_DRAWS = (
    aten.bernoulli_.float,
    aten.exponential_.default,
    aten.normal_.default,
    aten.uniform_.default,
    aten.rand.default,
    aten.rand_like.default,
    aten.randn.default,
    aten.randn_like.default,
)
"""Operations whose random numbers do not depend on the values of their inputs."""


def _is_random(func: OpOverload, args: Args, kwargs: Kwargs) -> bool:
    """Whether the operation draws random numbers: dropout may be switched off by its arguments."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    given = {a.name: a.default_value for a in func._schema.arguments} | dict(zip(names, args)) | kwargs
    is_off = given.get("train") is False or given.get("training") is False
    return not is_off and 0 not in (given.get("dropout_p"), given.get("dropout"))
