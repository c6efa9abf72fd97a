"""Two forward passes in one training step: of a batch, and of the batch moved at some places of the network.

The slope s = ‖∇d‖ of a score difference d is ⟨u, ∇d⟩ with u the direction of steepest ascent. With u held constant its
gradient with respect to the weights is that of (d(x) − d(x − h·u))/h: one more forward pass instead of a double
backward. In a linear region of a ReLU network this is exact for every h; elsewhere to first order in h.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from widemargin import norms, places
from widemargin._autograd.batch_statistics import KeptStatistics
from widemargin.checks import is_capturing
from widemargin.modules import mixing_modules, scores_of, uncompiled, uncounted, unwrap
from widemargin.places import At
from widemargin.types import Args, Kwargs, Scores


class TwoPasses:
    """The passes of `model` on a batch, with equal dropout masks and batch statistics.

    Running statistics count the batch once. Batch statistics are constants in the gradients at the places, and in
    `loss.backward()` they are not. While a CUDA graph is captured the masks are kept, and random functions whose
    numbers depend on their inputs raise a `RuntimeError`.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.network = model, unwrap(model)
        self._statistics, self._masks = KeptStatistics(), _Masks()
        self._states: list[Tensor] = []
        self.is_random, self._mixes = False, bool(mixing_modules(self.network))

    def first(self, x: Tensor, at: Sequence[str]) -> tuple[Scores, At]:
        """The scores of the batch, and the places `at` of their graph."""
        watching = places.watch(self.model, at, statistics="coupled")
        with self._eager(), watching as watched, self._recorded(watched):
            return self._drawn(x), watched

    def again(self, x: Tensor, at: Sequence[str]) -> tuple[Scores, At]:
        """The same for some samples of the batch, with its batch statistics, and new dropout masks."""
        watching = places.watch(self.model, at, statistics="coupled")
        with self._eager(), uncounted(self.network), self._reused(), watching as watched:
            return self._drawn(x), watched

    def moved(self, x: Tensor, steps: Mapping[str, Tensor]) -> Scores:
        """The scores of the samples of the last pass, with `steps` added at the places."""
        statistics, moving = self._reused(), places.moved(self.model, steps)
        drawn, masks = _with_random_states(self._states, x.device), self._masks.reused(x.device)
        with self._eager(), uncounted(self.network), statistics, moving, drawn, masks:
            return scores_of(self.model(x))

    def _drawn(self, x: Tensor) -> Tensor:
        """The scores of `x`, with random numbers that are remembered."""
        states = _random_states(x.device)
        with self._masks.recorded(x.device):
            scores = scores_of(self.model(x))
        is_drawn = any(not torch.equal(old, new) for old, new in zip(states, _random_states(x.device)))
        self._states = states if is_drawn else []
        self.is_random = is_drawn or bool(self._masks)
        return scores

    def _recorded(self, watched: At) -> AbstractContextManager[None]:
        return self._statistics.recorded(watched.frozen_route()) if self._mixes else nullcontext()

    def _reused(self) -> AbstractContextManager[None]:
        return self._statistics.reused() if self._mixes else nullcontext()

    @contextmanager
    def _eager(self) -> Iterator[None]:
        """The network uncompiled where BatchNorm mixes samples: a compiled one would not notice replaced functions."""
        with uncompiled(self.model) if self._mixes else nullcontext():
            yield


def steps_down(gradients: Mapping[str, Tensor], lengths: Mapping[str, Tensor], p: float) -> dict[str, Tensor]:
    """The steps along which functions with these gradients fall fastest, of l_p length `lengths` `[batch]` or `[1]`."""
    return {
        name: -(norms.steepest(g, p) * lengths[name].view(-1, *[1] * (g.ndim - 1))).to(g.dtype)
        for name, g in gradients.items()
    }


class _Masks(TorchDispatchMode):
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


def _random_states(device: torch.device) -> list[Tensor]:
    """The states of the generators that a network on `device` draws from; none while a CUDA graph is captured."""
    if is_capturing(device):
        return []
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


@contextmanager
def _with_random_states(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """The generators in these states inside the `with` block, and afterwards where they were."""
    if not states:  # nothing was drawn
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1], device)
        yield
