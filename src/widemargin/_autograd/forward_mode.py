"""Forward-mode differentiation: the scores of a network and their derivatives along directions at the input.

`At.along` computes the same derivatives after an ordinary forward pass, with one more backward pass. Here each
direction costs about one forward pass, which also gives the scores and their graph. The derivatives are constants for
the gradient, and no intermediate tensors are kept for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from widemargin import layers
from widemargin._autograd.jacobian_products import jvp
from widemargin.modules import is_compiled, mixing_modules, scores_of, unwrap
from widemargin.places import INPUT, At
from widemargin.types import Args, Kwargs

_RULES = layers.lookup("jvp")
_unsupported: WeakSet[nn.Module] = WeakSet()


def run(model: nn.Module, x: Tensor, directions: Tensor) -> tuple[Tensor, At] | None:
    """The scores of `x`, and the place `"input"` with their derivatives along `directions` `[some, *x.shape]`.

    None without forward mode: wrapped and compiled networks, networks that mix samples, recurrent layers, operations
    for which torch has no rule. A network with such an operation is not tried again.
    """
    if model in _unsupported or not is_plain(model, x):
        return None
    zero, directions = torch.zeros_like(x, requires_grad=True), directions.to(x.dtype)
    try:
        with warnings.catch_warnings(), _Rules(), sdpa_kernel(SDPBackend.MATH):  # torch has no rule for fused kernels
            warnings.filterwarnings("error", message=".*performance drop")  # torch would loop over the directions
            warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)  # from torch
            scores, along = (_one if len(directions) == 1 else _many)(model, x, zero, directions)
    except (RuntimeError, UserWarning):
        _unsupported.add(model)
        return None
    return scores, _Along(zero, scores, along.detach())


def _one(model: nn.Module, x: Tensor, zero: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """One direction by plain dual numbers: `jvp` and `vmap` would wrap every tensor twice, and a GPU would wait."""
    with forward_ad.dual_level():
        scores = scores_of(model(x + forward_ad.make_dual(zero, directions[0])))
        scores, along = forward_ad.unpack_dual(scores)
    return scores, (torch.zeros_like(scores) if along is None else along)[None]


def _many(model: nn.Module, x: Tensor, zero: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    outputs: list[Tensor] = []

    def derivative(u: Tensor) -> Tensor:
        scores, along = torch.func.jvp(lambda z: scores_of(model(x + z)), (zero,), (u,))  # type: ignore[misc]
        outputs.append(scores)
        return along

    along = vmap(derivative, randomness="same")(directions)
    (scores,) = outputs
    return scores, along


def is_plain(model: nn.Module, x: Tensor) -> bool:
    """Whether forward mode may be tried: an unwrapped network with floating-point inputs that does not mix samples."""
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
        self, func: Callable[..., Tensor], types: object, args: Args = (), kwargs: Kwargs | None = None
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
    """The input of a forward-mode pass, with the derivatives of the scores."""

    def __init__(self, zero: Tensor, scores: Tensor, along: Tensor) -> None:
        super().__init__((INPUT,))
        self._zeros[INPUT] = zero
        self._scores, self._derivatives = scores, along

    def along(self, outputs: Tensor, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The derivatives of `outputs`, a function of the scores, along the directions of the pass."""
        if len(directions[INPUT]) != len(self._derivatives):
            raise ValueError(f"directions has {len(directions[INPUT])}, but the pass had {len(self._derivatives)}")
        return {INPUT: jvp(outputs, [self._scores], [self._derivatives])[0]}
