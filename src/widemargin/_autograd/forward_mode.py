"""A forward pass that carries the derivatives along directions at the input with it: forward-mode differentiation.

`At.along` finds the same derivatives after an ordinary forward pass, by one backward pass more than is needed here.
Each direction costs about one forward pass; the scores and their graph come with it. The derivatives themselves are
constants for the gradient, and nothing is kept of what they pass through, from one linear layer or norm to the next.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import jvp, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from widemargin._autograd import norm_jvp
from widemargin._autograd.jvp import pushed
from widemargin.modules import is_compiled, mixing_modules, scores_of, unwrap
from widemargin.places import INPUT, At
from widemargin.types import HALF

_FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""Not the memory-efficient and the cuDNN kernels: inside `jvp` they take their input for one without a gradient, and do
not keep what their backward pass needs: it failed (the first) or had NaN for a gradient (the second)."""

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
    """Layers whose derivative along a direction is known better than torch knows it, and needs no graph."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and (attended := _attention(*args, **kwargs)) is not None:
            return forward_ad.make_dual(*attended)
        rule = _RULES.get(func)
        if rule is not None:
            named = {**dict(zip(_NAMES[func], args)), **kwargs}
            value, along = forward_ad.unpack_dual(named.pop("input"))
            if along is not None:
                found = rule(func, value, along, **named)
                if found is not None:
                    return forward_ad.make_dual(*found)
        return func(*args, **kwargs)


def _linear(
    func: Callable[..., Tensor], value: Tensor, along: Tensor, weight: Tensor, bias: Tensor | None = None, **how: Any
) -> tuple[Tensor, Tensor]:
    """Without the product of the input with the derivative of the weights.

    That derivative is 0, but torch takes the product all the same: a third convolution where two are needed.
    """
    with torch.no_grad():
        moved = func(along, weight, None, **how)
    return func(value, weight, bias, **how), moved


def _relu(
    func: Callable[..., Tensor], value: Tensor, along: Tensor, inplace: bool = False
) -> tuple[Tensor, Tensor] | None:
    """As the backward pass does it. torch's own would keep, beside what is saved for that, its derivative."""
    if inplace:
        return None
    out = func(value)
    with torch.no_grad():
        return out, torch.ops.aten.threshold_backward(along, out, 0)


def _gelu(
    func: Callable[..., Tensor], value: Tensor, along: Tensor, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """As `_relu`: the derivative of what acts on numbers one by one is the same forwards and backwards."""
    with torch.no_grad():
        moved = torch.ops.aten.gelu_backward(along, value, approximate=approximate)
    return func(value, approximate=approximate), moved


def _group_norm(
    _: Callable[..., Tensor],
    value: Tensor,
    along: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor] | None:
    """By an operation of our own for all directions at once."""
    if value.ndim < 2:
        return None
    value, along = _as_autocast_does(value).contiguous(), _as_autocast_does(along).contiguous()
    batch, channels = value.shape[:2]
    sizes = batch, channels, math.prod(value.shape[2:]), num_groups
    out, mean, rstd = torch.ops.aten.native_group_norm(value, weight, bias, *sizes, eps)
    with torch.no_grad():
        rows = (batch, channels, -1)
        moved = norm_jvp.along(along.reshape(rows), value.reshape(rows), mean, rstd, weight)
    return out, moved.reshape(value.shape)


def _layer_norm(
    _: Callable[..., Tensor],
    value: Tensor,
    along: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """As `_group_norm`."""
    value, along = _as_autocast_does(value).contiguous(), _as_autocast_does(along).contiguous()
    shape = list(normalized_shape)
    out, mean, rstd = torch.ops.aten.native_layer_norm(value, shape, weight, bias, eps)
    with torch.no_grad():
        rows = (mean.numel(), math.prod(shape), 1)
        alone = (mean.numel(), 1)
        moved = norm_jvp.along(
            along.reshape(rows),
            value.reshape(rows),
            mean.reshape(alone),
            rstd.reshape(alone),
            None if weight is None else weight.flatten(),
        )
    return out, moved.reshape(value.shape)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """softmax(s)·v of s = q·kᵀ·scale by the fused kernels, and its derivative by plain products.

    With P = softmax(s): dP = P∘(ds − Σ P∘ds), and dP·v + P·dv.
    """
    (q, dq), (k, dk), (v, dv) = (forward_ad.unpack_dual(tensor) for tensor in (query, key, value))
    is_plain = attn_mask is None and not dropout_p and not is_causal and not enable_gqa
    if dq is None or dk is None or dv is None or not is_plain:
        return None
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with sdpa_kernel(_FUSED):
        out = F.scaled_dot_product_attention(q, k, v, scale=scale)
    with torch.no_grad():
        wide = torch.float32 if q.dtype in HALF else q.dtype
        p = torch.softmax((q @ k.mT).to(wide) * scale, dim=-1)
        ds = (dq @ k.mT + q @ dk.mT).to(wide) * scale
        dp = p * (ds - (p * ds).sum(dim=-1, keepdim=True))
        moved = dp.to(v.dtype) @ v + p.to(v.dtype) @ dv
    return out, moved.to(out.dtype)


def _as_autocast_does(tensor: Tensor) -> Tensor:
    """Norms are taken in float32 on a GPU, where everything else may be in half precision."""
    kind = tensor.device.type
    half = tensor.dtype in HALF
    return tensor.float() if half and kind == "cuda" and torch.is_autocast_enabled(kind) else tensor


_RULES: dict[Any, Callable[..., tuple[Tensor, Tensor] | None]] = {
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d, F.linear), _linear),
    **dict.fromkeys((F.relu, torch.relu, Tensor.relu), _relu),
    F.gelu: _gelu,
    F.group_norm: _group_norm,
    F.layer_norm: _layer_norm,
}
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_NAMES: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _CONVOLUTION),
    F.linear: ("input", "weight", "bias"),
    **dict.fromkeys((F.relu, torch.relu, Tensor.relu), ("input", "inplace")),
    F.gelu: ("input", "approximate"),
    F.group_norm: ("input", "num_groups", "weight", "bias", "eps"),
    F.layer_norm: ("input", "normalized_shape", "weight", "bias", "eps"),
}
"""The names of their arguments, in their order."""


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
