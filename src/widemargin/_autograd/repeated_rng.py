"""Random numbers of a forward pass, drawn again in another: by generator states, or by kept masks in a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from widemargin.checks import is_capturing
from widemargin.types import Args, Kwargs

_OWN_GENERATOR = ("cuda", "mps")
"""Devices with a generator beside the CPU's."""


def random_states(device: torch.device) -> list[Tensor]:
    """The states of the generators that a network on `device` draws from; none while a CUDA graph is captured."""
    if is_capturing(device):
        return []
    own = [torch.get_device_module(device).get_rng_state(device)] if device.type in _OWN_GENERATOR else []
    return [torch.get_rng_state(), *own]


@contextmanager
def with_random_states(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Set the generators to these states inside the `with` block, and restore them afterwards."""
    if not states:  # nothing was drawn
        yield
        return
    has_own = device.type in _OWN_GENERATOR
    with torch.random.fork_rng(devices=[device] if has_own else [], device_type=device.type if has_own else "cuda"):
        torch.set_rng_state(states[0])
        if has_own:
            torch.get_device_module(device).set_rng_state(states[1], device)
        yield


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
