"""A network as what a relaxation needs of it: affine maps with their absolute values and adjoints, and kinks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.grad import conv1d_input, conv2d_input, conv3d_input
from torch.nn.modules.batchnorm import _BatchNorm

from widemargin import norms
from widemargin.geometry.network import read
from widemargin.geometry.steps import Affine, MaxPool, Slopes
from widemargin.modules import unwrap

_OF_INPUT: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: conv1d_input,
    nn.Conv2d: conv2d_input,
    nn.Conv3d: conv3d_input,
}
_AVERAGES = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


@dataclass(frozen=True, kw_only=True, eq=False)
class Map:
    """x ↦ Wx + b on inputs of `shape`; `absolute` is x ↦ |W|x, `row_norms` the l_q norm of every row, where known."""

    name: str
    shape: torch.Size
    device: torch.device
    linear: Callable[[Tensor], Tensor]
    absolute: Callable[[Tensor], Tensor]
    bias: Tensor | None
    moves: bool
    row_norms: Callable[[float], Tensor] | None = None
    transposed: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Wx + b."""
        y = self.linear(x)
        return y if self.bias is None else y + self.bias

    def adjoint(self, rows: Tensor) -> Tensor:
        """aᵀW of every row a: by a product with W where it is known, else as the gradient that it is."""
        if self.transposed is not None:
            return self.transposed(rows)
        with torch.enable_grad():
            zeros = rows.new_zeros(len(rows), *self.shape).requires_grad_()
            (product,) = torch.autograd.grad(self.linear(zeros), zeros, rows)
        return product


Step: TypeAlias = Map | Slopes | MaxPool


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """The steps of a network in float64, the shape that enters each, and the number of its outputs."""

    steps: tuple[Step, ...]
    shapes: tuple[torch.Size, ...]
    output: torch.Size
    device: torch.device

    @property
    def widest(self) -> int:
        """The number of entries of the largest layer."""
        return max(shape.numel() for shape in (*self.shapes, self.output))

    @cached_property
    def lipschitz(self) -> tuple[float, ...]:
        """The l_2 Lipschitz constant of every step; operator norms by Lanczos, and a millionth more."""
        return tuple(map(_lipschitz, self.steps, self.shapes))


def layers_of(model: nn.Module, x: Tensor) -> Layers:
    """The steps that `model` takes on `x` in evaluation mode, or a `TypeError` about the first that is not known.

    Known are chains of what `geometry` reads: Linear, Conv, ReLU, leaky ReLU and other activations of two slopes, max
    and average pools, Flatten, Dropout, and BatchNorm with running statistics.
    """
    network = read(model, x)
    modules = dict(unwrap(model).named_modules())
    steps: list[Step] = []
    shapes: list[torch.Size] = []
    h = torch.zeros(1, *network.shape, dtype=torch.float64, device=network.device)
    for step in network.steps:
        shapes.append(h.shape[1:])
        steps.append(_map(step, modules.get(step.name), h) if isinstance(step, Affine) else _kink(step))
        h = step.forward(h)
    return Layers(steps=tuple(steps), shapes=tuple(shapes), output=h.shape[1:], device=network.device)


def _lipschitz(step: Step, shape: torch.Size) -> float:
    if isinstance(step, Slopes):
        return max(abs(step.negative), abs(step.positive))
    if isinstance(step, MaxPool):  # an entry may be the largest of several windows
        return math.sqrt(int(step.windows[step.windows >= 0].bincount().max()))
    if step.moves:
        return 1.0

    def adjoint(u: Tensor) -> Tensor:
        return step.adjoint(u.view(1, *after)).flatten()

    zeros = torch.zeros(shape, dtype=torch.float64, device=step.device)
    after = step.linear(zeros[None]).shape[1:]
    found = norms.largest_singular_value(lambda v: step.linear(v.view(1, *shape)).flatten(), adjoint, zeros.flatten())
    return float(found) * (1 + 1e-6)


def _kink(step: Any) -> Step:
    if not isinstance(step, (Slopes, MaxPool)):
        raise TypeError(f"layer {step.name!r} is a {type(step).__name__}, for which there is no linear relaxation")
    return step


def _map(step: Affine, module: nn.Module | None, h: Tensor) -> Map:
    shape = h.shape[1:]
    transposed: Callable[[Tensor], Tensor] | None = None
    row_norms: Callable[[float], Tensor] | None = None
    if step.moves or isinstance(module, (_BatchNorm, *_AVERAGES)):
        # Without negative entries, or with one entry in a row: then |W|r = |Wr| for r ≥ 0.
        def absolute(r: Tensor) -> Tensor:
            return step.linear(r).abs()

    elif isinstance(module, nn.Linear):
        weight = module.weight.detach().double()

        def absolute(r: Tensor) -> Tensor:
            return nn.functional.linear(r, weight.abs())

        transposed = lambda rows: rows @ weight  # noqa: E731
        if len(shape) == 1:
            row_norms = lambda q: norms.lp(weight, q)  # noqa: E731
    elif isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        kernel, convolve = module.weight.detach().double(), module._conv_forward

        def absolute(r: Tensor) -> Tensor:
            return convolve(r, kernel.abs(), None)

        if module.padding_mode == "zeros" and not isinstance(module.padding, str):
            m, of_input = module, next(f for kind, f in _OF_INPUT.items() if isinstance(module, kind))
            transposed = lambda rows: of_input(  # noqa: E731
                (len(rows), *shape), kernel, rows, m.stride, m.padding, m.dilation, m.groups
            )
        if module.padding_mode == "zeros":
            row_norms = lambda q: _kernel_norms(kernel, convolve, shape, q)  # noqa: E731
    else:
        raise TypeError(f"layer {step.name!r} is {module!r}, for which there is no linear relaxation")
    return Map(
        name=step.name,
        shape=shape,
        device=h.device,
        linear=step.linear,
        absolute=absolute,
        bias=step.bias,
        moves=step.moves,
        row_norms=row_norms,
        transposed=transposed,
    )


def _kernel_norms(kernel: Tensor, convolve: Callable[..., Tensor], shape: torch.Size, q: float) -> Tensor:
    """The l_q norms of the rows of a convolution: of the kernel's entries that fall on the image.

    For q = ∞ the largest entry of the whole kernel, which at the edge of the image may be too large, never too small.
    """
    largest = kernel.abs().amax().clamp(min=torch.finfo(kernel.dtype).tiny)
    ones = kernel.new_ones(1, *shape)
    if q == torch.inf:
        per_channel = kernel.abs().flatten(1).amax(dim=1)
        return per_channel.view(-1, *[1] * (len(shape) - 1)) * torch.ones_like(convolve(ones, kernel, None)[0])
    return largest * convolve(ones, (kernel.abs() / largest) ** q, None)[0].clamp(min=0) ** (1 / q)
