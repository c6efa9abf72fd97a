"""Convolutions with a cheap double backward on GPUs.

The gradient at a convolution's input is linear in the gradient at its output and in the weights. For the derivative in
the weights torch runs a convolution whose kernel is as large as the image (with groups: one for each). It equals the
weight gradient of an ordinary backward pass with two tensors exchanged, which has fast kernels. On a CPU nothing is
gained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from widemargin._autograd.needed_grads import needed_grads, non_leaf
from widemargin.types import Args, AutogradContext, Kwargs

_DIMENSIONS: dict[Callable[..., Any], int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}

_Gradients = tuple[Tensor | None, ...]
_Shape = tuple[int, ...] | None


class CheapDoubleBackward(TorchFunctionMode):
    """Mode in which convolutions on a GPU have the cheap double backward; with `everywhere=True` on a CPU too."""

    def __init__(self, *, everywhere: bool = False) -> None:
        super().__init__()
        self.everywhere = everywhere

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func in _DIMENSIONS and (arguments := self._arguments(_DIMENSIONS[func], *args, **kwargs)) is not None:
            return _Convolution.apply(*arguments)
        return func(*args, **kwargs)

    def _arguments(
        self,
        dimensions: int,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
    ) -> tuple[Tensor, Tensor, Tensor | None, None, _Options] | None:
        """The arguments of `_Convolution`, or None if torch's own convolution is used."""
        is_here = (input.is_cuda or self.everywhere) and not torch.is_autocast_enabled(input.device.type)
        if not is_here or input.ndim != dimensions + 2 or isinstance(padding, str):
            return None
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, (input, weight))):  # networks of a population
            return None
        stride, padding, dilation = (_repeated(value, dimensions) for value in (stride, padding, dilation))
        options = _Options(stride, padding, dilation, groups)
        return non_leaf(input), non_leaf(weight), None if bias is None else non_leaf(bias), None, options


@dataclass(frozen=True)
class _Options:
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The convolution."""
        output: Tensor = torch.ops.aten.convolution(
            x, weight, bias, self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups
        )
        return output

    def input_gradient(self, g: Tensor, shape: tuple[int, ...], weight: Tensor) -> Tensor:
        """The gradient at an input of that shape, whose values are not needed."""
        return self._backward(g, g.new_empty(()).expand(shape), weight, 0)

    def weight_gradient(self, g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """The gradient at the weights, whose values are not needed."""
        return self._backward(g, x, weight, 1)

    def _backward(self, g: Tensor, x: Tensor, weight: Tensor, index: int) -> Tensor:
        gradients: _Gradients = torch.ops.aten.convolution_backward(
            g, x, weight, None, self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups,
            [number == index for number in range(3)],
        )  # fmt: skip
        gradient = gradients[index]
        assert gradient is not None
        return gradient


class _Convolution(torch.autograd.Function):
    """The convolution of v; with a `shape`, its transpose: the gradient at an input of that shape if v arrives."""

    @staticmethod
    def forward(v: Tensor, weight: Tensor, bias: Tensor | None, shape: _Shape, options: _Options) -> Tensor:
        return options.forward(v, weight, bias) if shape is None else options.input_gradient(v, shape, weight)

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: Args, output: Tensor) -> None:  # noqa: ARG004
        v, weight, _, ctx.shape, ctx.options = inputs
        ctx.save_for_backward(v, weight)

    @staticmethod
    def backward(ctx: AutogradContext, *gradients: Tensor) -> _Gradients:
        (g,) = gradients
        v, weight = ctx.saved_tensors
        needs_v, needs_weight, needs_bias, *_ = needed_grads(ctx)
        is_transposed = ctx.shape is not None
        shape, arriving, entering = (None, v, g) if is_transposed else (tuple(v.shape), g, v)
        return (
            _Convolution.apply(non_leaf(g), weight, None, shape, ctx.options) if needs_v else None,
            ctx.options.weight_gradient(arriving, entering, weight) if needs_weight else None,
            g.sum([0, *range(2, g.ndim)]) if needs_bias else None,
            None,
            None,
        )

    @staticmethod
    def vmap(
        info: AutogradContext, dims: Args, v: Tensor, weight: Tensor, bias: None, shape: _Shape, options: _Options
    ) -> tuple[Tensor, int]:
        """A batch of v as more samples, for several columns of scores at once (`At.columns`)."""
        if dims[0] is None or dims[1] is not None:
            raise RuntimeError("no batching rule for a batch of weights")
        samples = v.movedim(dims[0], 0).flatten(0, 1)
        if shape is not None:
            shape = (len(samples), *shape[1:])
        output = _Convolution.apply(samples, weight, bias, shape, options)
        return output.unflatten(0, (info.batch_size, -1)), 0


def _repeated(value: int | tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * dimensions if len(values) == 1 else values
