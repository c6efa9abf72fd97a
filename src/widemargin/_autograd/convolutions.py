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
    ) -> tuple[Tensor, Tensor, Tensor | None, _Options] | None:
        """The arguments of `_Convolution`, or None if torch's own convolution is used."""
        is_here = (input.is_cuda or self.everywhere) and not torch.is_autocast_enabled(input.device.type)
        if not is_here or input.ndim != dimensions + 2 or isinstance(padding, str):
            return None
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, (input, weight))):  # networks of a population
            return None
        stride, padding, dilation = (_repeated(value, dimensions) for value in (stride, padding, dilation))
        options = _Options(stride, padding, dilation, groups)
        return non_leaf(input), non_leaf(weight), None if bias is None else non_leaf(bias), options


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
    """The convolution; its gradient at the input is `_InputGradient`."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, options: _Options) -> Tensor:
        return options.forward(x, weight, bias)

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: Args, output: Tensor) -> None:  # noqa: ARG004
        x, weight, _, ctx.options = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: AutogradContext, *gradients: Tensor) -> _Gradients:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = needed_grads(ctx)
        return (
            _InputGradient.apply(g, weight, tuple(x.shape), ctx.options) if needs_x else None,
            ctx.options.weight_gradient(g, x, weight) if needs_weight else None,
            g.sum([0, *range(2, g.ndim)]) if needs_bias else None,
            None,
        )


class _InputGradient(torch.autograd.Function):
    """(g, weight) ↦ the gradient at the input, with the cheap derivative."""

    @staticmethod
    def forward(g: Tensor, weight: Tensor, shape: tuple[int, ...], options: _Options) -> Tensor:
        return options.input_gradient(g, shape, weight)

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: Args, output: Tensor) -> None:  # noqa: ARG004
        g, weight, _, ctx.options = inputs
        ctx.save_for_backward(g, weight)

    @staticmethod
    def backward(ctx: AutogradContext, *gradients: Tensor) -> _Gradients:
        (tangent,) = gradients
        g, weight = ctx.saved_tensors
        grad_g = ctx.options.forward(tangent, weight) if ctx.needs_input_grad[0] else None
        grad_weight = ctx.options.weight_gradient(g, tangent, weight) if ctx.needs_input_grad[1] else None
        return grad_g, grad_weight, None, None

    @staticmethod
    def vmap(
        info: AutogradContext, dims: Args, g: Tensor, weight: Tensor, shape: tuple[int, ...], options: _Options
    ) -> tuple[Tensor, int]:
        """A batch of g as more samples, for several columns of scores at once (`At.columns`)."""
        if dims[0] is None or dims[1] is not None:
            raise RuntimeError("no batching rule for a batch of weights")
        samples = g.movedim(dims[0], 0).flatten(0, 1)
        gradient = _InputGradient.apply(samples, weight, (len(samples), *shape[1:]), options)
        return gradient.unflatten(0, (info.batch_size, shape[0])), 0


def _repeated(value: int | tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * dimensions if len(values) == 1 else values
