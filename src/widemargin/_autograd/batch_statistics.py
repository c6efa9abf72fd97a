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
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from widemargin._autograd.frozen_batchnorm import Route
from widemargin.modules import is_checkpointing
from widemargin.types import Args, AutogradContext, Kwargs

Statistics = tuple[Tensor, Tensor]
"""Mean and 1/√(variance + ε) of every channel."""

Affine = tuple[Tensor | None, Tensor | None]
"""Weight and bias, or running mean and variance; None where a layer has none."""


class KeptStatistics:
    """The statistics of every batch normalisation of a forward pass, in the order of the calls.

    It sees all calls of `F.batch_norm` in training mode, so also those of layers with a `forward` of their own.
    """

    def __init__(self) -> None:
        self._kept: list[Statistics] = []

    @contextmanager
    def recorded(self, route: Route) -> Iterator[None]:
        """Record the statistics of a forward pass inside the `with` block; its gradients follow `route`."""
        self._kept = []

        def normalised(x: Tensor, running: Affine, affine: Affine, momentum: float, eps: float) -> Tensor:
            if x.numel() == x.shape[1]:
                raise ValueError(f"Expected more than 1 value per channel when training, got input {list(x.shape)}")
            out, mean, inverse = normalise(x, *affine, running, momentum, eps, route)
            self._kept.append((mean, inverse))
            return out

        with _replaced(normalised):
            yield

    @contextmanager
    def reused(self) -> Iterator[None]:
        """Normalise with the recorded statistics in a forward pass inside the `with` block."""
        calls = iter(self._kept)

        def normalised(x: Tensor, _: Affine, affine: Affine, __: float, eps: float) -> Tensor:
            return normalise_with(x, *affine, *next(calls), eps)

        with _replaced(normalised):
            yield


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
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running: Affine, momentum: float, eps: float, route: Route
) -> tuple[Tensor, Tensor, Tensor]:
    """`F.batch_norm` in training mode, and the statistics of the batch, all of them differentiable."""
    result: tuple[Tensor, Tensor, Tensor] = _Normalise.apply(x, weight, bias, running, momentum, eps, route)
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
        running: Affine,
        momentum: float,
        eps: float,
        route: Route,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # What F.batch_norm calls: of cudnn where that would be taken.
        index, cudnn = torch.ops.aten._batch_norm_impl_index, torch.backends.cudnn.enabled
        out, mean, inverse, _, _ = index(x, weight, bias, *running, True, momentum, eps, cudnn)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.route = route
        ctx.set_materialize_grads(False)
        return out, mean, inverse

    @staticmethod
    @once_differentiable
    def backward(
        ctx: AutogradContext, g: Tensor | None, to_mean: Tensor | None, to_inverse: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        if g is None:
            g = torch.zeros_like(x)
        if ctx.route.is_frozen:
            return _scaled(g, weight, inverse), *[None] * 6
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        sums, products = _sums(g, x, mean, inverse)
        to_weight = (products * inverse).to(weight.dtype) if needs_weight else None
        to_bias = sums.to(g.dtype if weight is None else weight.dtype) if needs_bias else None
        if not needs_x:
            return None, to_weight, to_bias, *[None] * 4
        # The gradient at x is a function of g and of these two sums. Gradients of the statistics change the sums alone:
        # one kernel for both. Those that come from a weight of 0 are 0.
        w = torch.ones_like(mean) if weight is None else weight.to(mean.dtype)
        divisor = torch.where(w == 0, 1.0, w)
        if to_mean is not None:
            sums = torch.addcdiv(sums, to_mean, divisor * inverse, value=-1)
        if to_inverse is not None:
            products = torch.addcdiv(products, to_inverse, divisor)
        return _gradient(g, x, mean, inverse, w, sums, products), to_weight, to_bias, *[None] * 4


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
        ctx.save_for_backward(x, weight, mean, inverse)
        return torch.native_batch_norm(x, weight, bias, mean, inverse**-2 - eps, False, 0.0, eps)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        sums, products = _sums(g, x, mean, inverse)
        w = torch.ones_like(mean) if weight is None else weight.to(mean.dtype)
        needs_x, _, _, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            _scaled(g, weight, inverse) if needs_x else None,
            -sums * w * inverse,
            products * w,
            (products * inverse).to(weight.dtype) if needs_weight else None,
            sums.to(g.dtype if weight is None else weight.dtype) if needs_bias else None,
            None,
        )


def _sums(g: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> Statistics:
    """Σ g and Σ g·(x − mean) of every channel, by one pass over both."""
    if x.is_cuda:
        x, g = _alike(x, g)
        sums, products, _, _ = torch.batch_norm_backward_reduce(g, x, mean, inverse, None, True, False, False)
        return sums, products
    _, products, sums = torch.ops.aten.native_batch_norm_backward(
        g, x, torch.ones_like(mean), None, None, mean, inverse, True, 0.0, [False, True, True]
    )
    return sums, products / inverse


def _gradient(
    g: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, sums: Tensor, products: Tensor
) -> Tensor:
    """w·inverse·(g − (sums + (x − mean)·inverse²·products)/n) with n values in a channel."""
    count = x.numel() // len(mean)
    if x.is_cuda:
        x, g = _alike(x, g)
        total = torch.full((1,), count, dtype=torch.int32, device=x.device)
        return torch.batch_norm_backward_elemt(g, x, mean, inverse, weight, sums, products, total)
    scale = weight * inverse
    slope = -scale * inverse.square() * products / count
    shift = -scale * sums / count - slope * mean
    own = torch.addcmul(_by_channel(shift, x), x, _by_channel(slope, x))
    return torch.addcmul(own, g, _by_channel(scale, x)).to(x.dtype)


def _scaled(g: Tensor, weight: Tensor | None, inverse: Tensor) -> Tensor:
    """g·w·inverse, in the dtype of g and without a temporary in another."""
    scale = inverse if weight is None else inverse * weight
    return torch.mul(g, _by_channel(scale, g), out=torch.empty_like(g))


def _alike(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the memory format of `x`, which torch's kernels for several processes expect."""
    is_last = x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if is_last else torch.contiguous_format
    return x.contiguous(memory_format=layout), g.contiguous(memory_format=layout)


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (x.ndim - 2))
