"""Batch statistics of BatchNorm layers, computed in one forward pass and used again in another.

A step with two forward passes, of a batch and of the same batch moved a little, must normalise both alike: statistics
of the moved batch would hide part of the change. The second pass therefore takes mean and standard deviation of the
first one, with their graph: held constant they would let training shrink the activations of the first pass without
limit. Running statistics count the batch once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from widemargin._autograd.frozen_batchnorm import Route
from widemargin.modules import is_checkpointing
from widemargin.types import Args, AutogradContext, Kwargs

Statistics = tuple[Tensor, Tensor]
"""Mean and 1/√(variance + ε) of every channel."""

ChannelPair = tuple[Tensor | None, Tensor | None]
"""Weight and bias, or running mean and variance, of every channel; None where a layer has none."""


class KeptStatistics:
    """The statistics of every batch normalisation of a forward pass: by its weight, and in the order of the calls.

    It sees all calls of `F.batch_norm` in training mode, so also those of layers with a `forward` of their own. A layer
    that ran more often in the pass that uses them, as with stochastic depth, has statistics of its own there.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[Statistics]] = {}
        self.has_same_calls = True
        """Whether the last pass that used the statistics had the calls of the recorded one."""

    @contextmanager
    def recorded(self, route: Route) -> Iterator[None]:
        """Record the statistics of a forward pass inside the `with` block; its gradients follow `route`."""
        self._kept = {}

        def normalised(x: Tensor, running: ChannelPair, affine: ChannelPair, momentum: float, eps: float) -> Tensor:
            if x.numel() == x.shape[1]:
                raise ValueError(f"Expected more than 1 value per channel when training, got input {list(x.shape)}")
            out, mean, inverse = normalise(x, affine, running, momentum, eps, route)
            self._kept.setdefault(_layer(affine), []).append((mean, inverse))
            return out

        with _replaced(normalised):
            yield

    @contextmanager
    def reused(self) -> Iterator[None]:
        """Normalise with the recorded statistics in a forward pass inside the `with` block."""
        calls = {layer: iter(kept) for layer, kept in self._kept.items()}
        self.has_same_calls = True

        def normalised(x: Tensor, _: ChannelPair, affine: ChannelPair, __: float, eps: float) -> Tensor:
            statistics = next(calls.get(_layer(affine), iter(())), None)
            if statistics is None:
                self.has_same_calls = False
                return F.batch_norm(x, None, None, *affine, True, 0.0, eps)
            return normalise_with(x, *affine, *statistics, eps)

        with _replaced(normalised):
            yield
        self.has_same_calls &= all(next(left, None) is None for left in calls.values())


def _layer(affine: ChannelPair) -> int:
    """The layer with this weight; 0 for all without a weight of their own."""
    return id(affine[0]) if isinstance(affine[0], nn.Parameter) else 0


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.batch_norm`, with statistics recorded or used again; for functions that a `TorchFunctionMode` does not see."""
    replacement = _REPLACEMENT.get() if training else None
    if replacement is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if is_checkpointing():
        raise RuntimeError(
            "a BatchNorm layer in training mode is inside torch.utils.checkpoint, which would compute it again with "
            "other statistics in the backward pass: leave it out of the checkpointed part"
        )
    return replacement(input, (running_mean, running_var), (weight, bias), momentum, eps)


_REPLACEMENT: ContextVar[Callable[..., Tensor] | None] = ContextVar("replacement", default=None)
"""The function that replaces `F.batch_norm` in training mode now."""


@contextmanager
def _replaced(function: Callable[..., Tensor]) -> Iterator[None]:
    before = _REPLACEMENT.set(function)
    try:
        with _BatchNorms():
            yield
    finally:
        _REPLACEMENT.reset(before)


class _BatchNorms(TorchFunctionMode):
    """Replaces `F.batch_norm` by `batch_norm`."""

    def __torch_function__(
        self, func: Callable[..., object], types: Args, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        return (batch_norm if func is F.batch_norm else func)(*args, **(kwargs or {}))


def normalise(
    x: Tensor, affine: ChannelPair, running: ChannelPair, momentum: float, eps: float, route: Route
) -> tuple[Tensor, Tensor, Tensor]:
    """`F.batch_norm` in training mode, and the statistics of the batch, all of them differentiable."""
    result: tuple[Tensor, Tensor, Tensor] = _Normalise.apply(x, *affine, running, momentum, eps, route)
    return result


def normalise_with(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, eps: float
) -> Tensor:
    """w·(x − mean)·inverse + b, differentiable in all of them."""
    result: Tensor = _NormaliseWith.apply(x, mean, inverse, weight, bias, eps)
    return result


class _Normalise(torch.autograd.Function):
    """Batch normalisation whose statistics are outputs, too."""

    @staticmethod
    def forward(
        ctx: AutogradContext,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: ChannelPair,
        momentum: float,
        eps: float,
        route: Route,
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, mean, inverse = torch.native_batch_norm(x, weight, bias, *running, True, momentum, eps)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.eps, ctx.route = eps, route
        ctx.set_materialize_grads(False)
        return out, mean, inverse

    @staticmethod
    @once_differentiable
    def backward(
        ctx: AutogradContext, g: Tensor | None, to_mean: Tensor | None, to_inverse: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        if ctx.route.is_frozen:
            assert g is not None
            return (g * _scale(weight, inverse, x)).to(x.dtype), *[None] * 6
        to_x: Tensor | None = None
        to_weight: Tensor | None = None
        to_bias: Tensor | None = None
        if g is not None:
            to_x, to_weight, to_bias = torch.ops.aten.native_batch_norm_backward(
                g, x, weight, None, None, mean, inverse, True, ctx.eps, ctx.needs_input_grad[:3]
            )
        if (to_mean is not None or to_inverse is not None) and ctx.needs_input_grad[0]:
            samples = x.numel() // len(mean)
            slope = torch.zeros_like(mean) if to_inverse is None else -to_inverse * inverse**3 / samples
            shift = -slope * mean if to_mean is None else to_mean / samples - slope * mean
            own = x * _by_channel(slope, x) + _by_channel(shift, x)
            to_x = own.to(x.dtype) if to_x is None else to_x + own.to(x.dtype)
        return to_x, to_weight, to_bias, *[None] * 4


class _NormaliseWith(torch.autograd.Function):
    """Normalisation with given statistics, by the kernels of evaluation mode."""

    @staticmethod
    def forward(
        ctx: AutogradContext,
        x: Tensor,
        mean: Tensor,
        inverse: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> Tensor:
        variance = inverse**-2 - eps
        ctx.save_for_backward(x, weight, mean, inverse, variance)
        ctx.eps = eps
        return torch.native_batch_norm(x, weight, bias, mean, variance, False, 0.0, eps)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse, variance = ctx.saved_tensors
        weight = torch.ones_like(mean) if weight is None else weight  # CUDA's kernel sums g·x̂ only beside a weight
        to_x, to_weight, to_bias = torch.ops.aten.native_batch_norm_backward(
            g, x, weight, mean, variance, mean, inverse, False, ctx.eps, [ctx.needs_input_grad[0], True, True]
        )
        # x̂ = (x − mean)·inverse, so both follow from Σ g and Σ g·x̂
        to_mean, to_inverse = -to_bias * weight * inverse, to_weight * weight / inverse
        needs_weight, needs_bias = ctx.needs_input_grad[3:5]
        return to_x, to_mean, to_inverse, to_weight if needs_weight else None, to_bias if needs_bias else None, None


def _scale(weight: Tensor | None, inverse: Tensor, x: Tensor) -> Tensor:
    return _by_channel(inverse if weight is None else inverse * weight, x)


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (x.ndim - 2))
