"""Two forward passes in one training step: of a batch, and of the batch moved at some places of the network.

The slope s = ‖∇d‖ of a score difference d is ⟨u, ∇d⟩ with u the direction of steepest ascent. With u held constant its
gradient with respect to the weights is that of (d(x) − d(x − h·u))/h: one more forward pass instead of a double
backward. In a linear region of a ReLU network this is exact for every h; elsewhere to first order in h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from widemargin import norms, places
from widemargin._autograd.batch_statistics import KeptStatistics
from widemargin.checks import is_capturing
from widemargin.modules import mixing_modules, scores_of, uncompiled, uncounted, unwrap
from widemargin.places import At
from widemargin.types import Args, Kwargs, Scores


class TwoPasses:
    """The passes of `model` on a batch, with equal dropout masks and batch statistics.

    Running statistics count the batch once. Batch statistics are constants in the gradients at the places, and in
    `loss.backward()` they are not. While a CUDA graph is captured the masks of `F.dropout` are kept, and other random
    functions raise a `RuntimeError`.
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


class _Masks(TorchFunctionMode):
    """Dropout masks of a pass that is captured in a CUDA graph, where random states can't be set."""

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

    def __torch_function__(
        self, func: Callable[..., object], types: Args, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._dropout(*args, **kwargs)
        if func in _OTHER_DROPOUTS and _draws(func, args, kwargs):
            raise RuntimeError(f"{func.__name__} draws random numbers, which two passes in a CUDA graph can't share")
        return func(*args, **kwargs)

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG002
        if not training or p == 0:
            return input
        if self._calls is None:
            self._masks.append(F.dropout(torch.ones_like(input), p))
            return input * self._masks[-1]
        return input * next(self._calls)


def _draws(func: Callable[..., object], args: Args, kwargs: Kwargs) -> bool:
    """Whether a call of another function with dropout drops anything."""
    given = {**dict(zip(_OTHER_DROPOUTS[func], args)), **kwargs}
    return bool(given.get("training", True) and given.get("p", given.get("dropout_p", 0.0)))


_DROPOUT = ("input", "p", "training", "inplace")
_OTHER_DROPOUTS: dict[Callable[..., object], tuple[str, ...]] = {
    F.dropout1d: _DROPOUT,
    F.dropout2d: _DROPOUT,
    F.dropout3d: _DROPOUT,
    F.alpha_dropout: _DROPOUT,
    F.feature_alpha_dropout: _DROPOUT,
    F.scaled_dot_product_attention: ("query", "key", "value", "attn_mask", "dropout_p"),
}


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
