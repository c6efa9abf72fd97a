"""A forward pass that carries the derivatives along directions at the input with it: forward-mode differentiation.

`At.along` finds the same derivatives after an ordinary forward pass, by one backward pass more than is needed here.
Each direction costs about one forward pass; the scores and their graph come with it. The derivatives themselves are
constants for the gradient, and nothing is kept of what they pass through, from one linear layer or norm to the next.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from widemargin import layers
from widemargin._autograd.jvp import pushed
from widemargin.modules import is_compiled, mixing_modules, scores_of, unwrap
from widemargin.places import INPUT, At

_RULES = layers.lookup("jvp")
_refused: WeakSet[nn.Module] = WeakSet()


def run(model: nn.Module, x: Tensor, directions: Tensor) -> tuple[Tensor, At] | None:
    """The scores of `x`, and the place `"input"` with the derivatives along `directions` `[some, *x.shape]` in it.

    None where there is no forward mode: wrapped and compiled networks, samples that mix, recurrent layers, operations
    for which torch has no rule. A network that was found to have one is not tried again.
    """
    if model in _refused or not is_plain(model, x):
        return None
    zero, directions = torch.zeros_like(x, requires_grad=True), directions.to(x.dtype)
    try:
        with warnings.catch_warnings(), _Rules(), sdpa_kernel(SDPBackend.MATH):  # fused has no rule of torch's
            warnings.filterwarnings("error", message=".*performance drop")  # a loop, operation by operation
            warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)  # torch's own
            scores, along = (_one if len(directions) == 1 else _many)(model, x, zero, directions)
    except (RuntimeError, UserWarning):
        _refused.add(model)
        return None
    return scores, _Along(zero, scores, along.detach())


def _one(model: nn.Module, x: Tensor, zero: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """By dual numbers as they are: `jvp` and `vmap` would wrap every tensor twice, and a GPU would wait for that."""
    with forward_ad.dual_level():
        scores = scores_of(model(x + forward_ad.make_dual(zero, directions[0])))
        scores, along = forward_ad.unpack_dual(scores)
    return scores, (torch.zeros_like(scores) if along is None else along)[None]


def _many(model: nn.Module, x: Tensor, zero: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    found: list[Tensor] = []

    def push(u: Tensor) -> Tensor:
        scores, along = jvp(lambda z: scores_of(model(x + z)), (zero,), (u,))  # type: ignore[misc]
        found.append(scores)
        return along

    along = vmap(push, randomness="same")(directions)
    (scores,) = found
    return scores, along


def is_plain(model: nn.Module, x: Tensor) -> bool:
    """Whether forward mode may be tried: a network as it is, of floating-point inputs, that keeps samples apart."""
    return (
        x.is_floating_point()
        and torch.is_grad_enabled()
        and unwrap(model) is model
        and not is_compiled(model)
        and not mixing_modules(model)
        and not any(isinstance(module, nn.RNNBase) for module in model.modules())
    )


class _Rules(TorchFunctionMode):
    """Calls the rules of the registry of layers where they are cheaper than torch's own and need no graph."""

    def __torch_function__(
        self,
        func: Callable[..., Tensor],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        rule = _RULES.get(func)
        if rule is not None:
            named = dict(kwargs or {})
            value = args[0] if args else named.pop("query" if "query" in named else "input")
            primal, tangent = forward_ad.unpack_dual(value)
            if tangent is not None and (pair := rule(func, primal, tangent, *args[1:], **named)) is not None:
                return forward_ad.make_dual(*pair)
        return func(*args, **(kwargs or {}))


class _Along(At):
    """The input of a pass that carried derivatives of the scores with it."""

    def __init__(self, zero: Tensor, scores: Tensor, along: Tensor) -> None:
        super().__init__((INPUT,))
        self._zeros[INPUT] = zero
        self._scores, self._derivatives = scores, along

    def along(self, outputs: Tensor, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of the pass, whose `directions` must be the same ones, from the scores on to `outputs`."""
        if len(directions[INPUT]) != len(self._derivatives):
            raise ValueError(f"directions has {len(directions[INPUT])}, but the pass had {len(self._derivatives)}")
        return {INPUT: pushed(outputs, [self._scores], [self._derivatives])[0]}
