"""A forward pass that carries the derivatives along directions at the input with it: forward-mode differentiation.

`At.along` finds the same derivatives after an ordinary forward pass, by one backward pass more than is needed here.
Each direction costs about one forward pass; the scores and their graph come with it. What the directions pass through
is kept until the pass ends: with m of them 1 + m times the activations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import jvp, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from widemargin import places
from widemargin.along import pushed
from widemargin.places import INPUT, At

_LINEAR: set[Any] = {torch.conv1d, torch.conv2d, torch.conv3d, F.linear}

_refused: WeakSet[nn.Module] = WeakSet()


def run(model: nn.Module, x: Tensor, directions: Tensor) -> tuple[Tensor, At] | None:
    """The scores of `x`, and the place `"input"` with the derivatives along `directions` `[some, *x.shape]` in it.

    None where there is no forward mode: wrapped and compiled networks, samples that mix, recurrent layers, operations
    for which torch has no rule. A network that was found to have one is not tried again.
    """
    if model in _refused or not is_plain(model, x):
        return None
    zero = torch.zeros_like(x, requires_grad=True)
    found: list[Tensor] = []

    def push(u: Tensor) -> Tensor:
        scores, along = jvp(lambda z: places.scores_of(model(x + z)), (zero,), (u,))  # type: ignore[misc]
        found.append(scores)
        return along

    try:
        with warnings.catch_warnings(), _WeightsAreConstants(), sdpa_kernel(SDPBackend.MATH):  # fused has no rule
            warnings.filterwarnings("error", message=".*performance drop")  # a loop, operation by operation
            warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)  # torch's own
            along = vmap(push, randomness="same")(directions.to(x.dtype))
    except (RuntimeError, UserWarning):
        _refused.add(model)
        return None
    (scores,) = found
    return scores, _Along(zero, scores, along.detach())


def is_plain(model: nn.Module, x: Tensor) -> bool:
    """Whether forward mode may be tried: a network as it is, of floating-point inputs, that keeps samples apart."""
    return (
        x.is_floating_point()
        and torch.is_grad_enabled()
        and places.unwrap(model) is model
        and not places.is_compiled(model)
        and not places.mixing_modules(model)
        and not any(isinstance(module, nn.RNNBase) for module in model.modules())
    )


class _WeightsAreConstants(TorchFunctionMode):
    """Convolutions and linear layers without the product of their input with the derivative of their weights.

    That derivative is 0, but torch takes the product all the same: a third convolution where two are needed.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _LINEAR and len(args) >= 3:
            x, weight, bias, *rest = args
            value, along = forward_ad.unpack_dual(x)
            if along is not None:
                there = func(value, weight, bias, *rest, **kwargs)
                return forward_ad.make_dual(there, func(along, weight, None, *rest, **kwargs))
        return func(*args, **kwargs)


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
