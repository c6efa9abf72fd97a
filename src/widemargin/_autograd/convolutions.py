"""Convolutions whose gradients have a cheap gradient, for GPUs.

The gradient at a convolution's input is linear in what arrives at its output and in the weights. torch finds the
weights' part of its derivative by a convolution whose kernel is as large as the image, for groups by one for each. It
is the gradient of weights of an ordinary backward pass, with two tensors in each other's places, and there are fast
kernels for that. On a CPU nothing is gained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from widemargin._autograd.needed_grads import asked, inner

_DIMENSIONS: dict[Any, int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}


class Twice(TorchFunctionMode):
    """Inside of it convolutions of a GPU's tensors are such ones; `everywhere`, those of a CPU too."""

    def __init__(self, *, everywhere: bool = False) -> None:
        super().__init__()
        self.everywhere = everywhere

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DIMENSIONS and (taken := self._taken(_DIMENSIONS[func], *args, **kwargs)) is not None:
            return _Convolution.apply(*taken)
        return func(*args, **kwargs)

    def _taken(
        self,
        dimensions: int,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
    ) -> tuple[Tensor, Tensor, Tensor | None, _How] | None:
        """What `_Convolution` takes; None where torch's own is taken."""
        is_here = (input.is_cuda or self.everywhere) and not torch.is_autocast_enabled(input.device.type)
        if not is_here or input.ndim != dimensions + 2 or isinstance(padding, str):
            return None
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, (input, weight))):  # no vmap rule for weights
            return None
        many = [_each(value, dimensions) for value in (stride, padding, dilation)]
        how = _How(many[0], many[1], many[2], groups)
        return inner(input), inner(weight), None if bias is None else inner(bias), how


@dataclass(frozen=True)
class _How:
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The convolution."""
        found: Tensor = torch.ops.aten.convolution(
            x, weight, bias, self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups
        )
        return found

    def at_input(self, g: Tensor, shape: tuple[int, ...], weight: Tensor) -> Tensor:
        """The gradient at an input of that shape."""
        return self._backward(g, g.new_empty(()).expand(shape), weight, 0)  # the input itself does not enter

    def at_weight(self, g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """The gradient at the weights, of which the numbers do not enter."""
        return self._backward(g, x, weight, 1)

    def _backward(self, g: Tensor, x: Tensor, weight: Tensor, wanted: int) -> Tensor:
        found = torch.ops.aten.convolution_backward(
            g, x, weight, None, self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups,
            [number == wanted for number in range(3)],
        )  # fmt: skip
        gradient: Tensor = found[wanted]
        return gradient


class _Convolution(torch.autograd.Function):
    """The convolution; only its gradient at the input is one of ours."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, how: _How) -> Tensor:
        return how.forward(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        x, weight, _, ctx.how = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, _ = asked(ctx)
        return (
            _AtInput.apply(g, weight, tuple(x.shape), ctx.how) if wants_x else None,
            ctx.how.at_weight(g, x, weight) if wants_weight else None,
            g.sum([0, *range(2, g.ndim)]) if wants_bias else None,
            None,
        )


class _AtInput(torch.autograd.Function):
    """(g, weight) ↦ the gradient at the input, with its own derivative."""

    @staticmethod
    def forward(g: Tensor, weight: Tensor, shape: tuple[int, ...], how: _How) -> Tensor:
        return how.at_input(g, shape, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        g, weight, _, ctx.how = inputs
        ctx.save_for_backward(g, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (along,) = gradients
        g, weight = ctx.saved_tensors
        of_g = ctx.how.forward(along, weight) if ctx.needs_input_grad[0] else None
        of_weight = ctx.how.at_weight(g, along, weight) if ctx.needs_input_grad[1] else None
        return of_g, of_weight, None, None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[Any, ...], g: Tensor, weight: Tensor, shape: tuple[int, ...], how: _How
    ) -> tuple[Tensor, int]:
        """Many g as so many more samples, for several columns of scores at once (`At.columns`)."""
        if dims[0] is None or dims[1] is not None:
            raise RuntimeError("no rule for a batch of weights")
        folded = g.movedim(dims[0], 0).flatten(0, 1)
        found = _AtInput.apply(folded, weight, (len(folded), *shape[1:]), how)
        return found.unflatten(0, (info.batch_size, shape[0])), 0


def _each(value: int | tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    many = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return many * dimensions if len(many) == 1 else many
