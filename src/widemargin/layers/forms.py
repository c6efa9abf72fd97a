"""Forms of layers in float64: affine maps, activations of two slopes, max-pools, sums and division by the size.

A form acts on rows `[rows, *shape]`. An affine function on a line or a plane is carried through a network as a stack of
rows, one per direction and one for the constant; biases are added to the constant row alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from widemargin import norms

RowNorms: TypeAlias = Callable[[float, Tensor | None], Tensor]
"""(q, weight) → l_q norms of the rows of W, in the shape of an output; `weight`, if given, replaces the layer's own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Affine:
    """x ↦ Wx + b on inputs like `zeros` `[1, *shape]`. `is_weight`: W is a trained matrix or kernel.

    `absolute` is x ↦ |W|x for x ≥ 0; without it |Wx| is taken, which is the same where a row of W has entries of one
    sign. `transposed` is a ↦ aᵀW, `row_norms` are those of W, and `norm` is ‖W‖_2 or an upper bound, or a function that
    returns it, where they are known. `moves`: W only moves entries. `diagonal`: W is diagonal, and `norm` is its norm
    in every l_p.
    """

    zeros: Tensor
    linear: Callable[[Tensor], Tensor]
    bias: Tensor | None = None  # broadcasts against the rows of linear(x)
    absolute: Callable[[Tensor], Tensor] | None = None
    transposed: Callable[[Tensor], Tensor] | None = None
    row_norms: RowNorms | None = None
    norm: float | Callable[[], float] | None = None
    is_weight: bool = False
    moves: bool = False
    diagonal: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """Wx + b of samples."""
        y = self.linear(x)
        return y if self.bias is None else y + self.bias

    def stacked(self, stack: Tensor) -> Tensor:
        """The map on stacks `[cells, k, *shape]`, whose last row is the constant."""
        y = self.linear(stack.flatten(0, 1)).unflatten(0, stack.shape[:2])
        if self.bias is None:
            return y
        return torch.cat((y[:, :-1], y[:, -1:] + self.bias), dim=1)

    def magnitude(self, r: Tensor) -> Tensor:
        """|W|r for r ≥ 0."""
        return self.linear(r).abs() if self.absolute is None else self.absolute(r)

    def adjoint(self, rows: Tensor) -> Tensor:
        """aᵀW of every row a: by a product with W where it is known, else as a gradient."""
        if self.transposed is not None:
            return self.transposed(rows)
        with torch.enable_grad():
            x = rows.new_zeros(len(rows), *self.zeros.shape[1:]).requires_grad_()
            (product,) = torch.autograd.grad(self.linear(x), x, rows)
        return product

    @cached_property
    def lipschitz(self) -> float:
        """An upper bound of ‖W‖_2: by Lanczos iteration and ‖W‖_F where `norm` is not known."""
        if self.norm is not None:
            return self.norm() if callable(self.norm) else self.norm
        if self.moves:
            return 1.0
        shape = self.linear(self.zeros).shape
        size = norms.singular_value_upper_bound(
            lambda v: self.linear(v.view_as(self.zeros)).flatten(),
            lambda u: self.adjoint(u.view(shape)).flatten(),
            self.zeros.flatten(),
        )
        frobenius = math.inf if self.row_norms is None else float(norms.frobenius(self.row_norms(2.0, None)))
        return min(float(size), frobenius)


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """h ↦ positive·h for h > 0 and negative·h for h ≤ 0, entry by entry; S_i(x) of sokolic (6) holds the slopes."""

    negative: float
    positive: float

    @classmethod
    def of(cls, slopes: object, name: str) -> Slopes:
        """The activation of a tuple (negative, positive)."""
        if not (isinstance(slopes, tuple) and len(slopes) == 2 and all(math.isfinite(slope) for slope in slopes)):
            raise TypeError(f"slopes of {name} is {slopes!r}, expected two finite numbers, for h ≤ 0 and for h > 0")
        return cls(negative=float(slopes[0]), positive=float(slopes[1]))

    @property
    def lipschitz(self) -> float:
        """The larger absolute slope."""
        return max(abs(self.negative), abs(self.positive))

    def forward(self, x: Tensor) -> Tensor:
        """The activation of samples; its derivative at 0 is `negative` (sokolic: 0 for a ReLU)."""
        return torch.where(x > 0, self.positive * x, self.negative * x)

    def pattern(self, x: Tensor) -> Tensor:
        """Whether each entry is positive: bool, of the shape of `x`."""
        return x > 0

    def rivals(self, stack: Tensor) -> Tensor:
        """Per unit the affine functions whose largest decides: (h, 0), as `[cells, k, units, 2]`."""
        flat = stack.flatten(2)
        return torch.stack((flat, torch.zeros_like(flat)), dim=3)

    def stacked(self, stack: Tensor, winners: Tensor) -> Tensor:
        """The activation of stacks, `winners[cell, unit]` being 0 where h is positive and 1 where it is not."""
        slopes = stack.new_tensor((self.positive, self.negative))[winners]
        return stack * slopes.reshape(len(stack), 1, *stack.shape[2:])


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxPool:
    """The largest entry of each window; `windows[unit, position]` is an index into the flat input, −1 for padding."""

    windows: Tensor
    shape: torch.Size  # of the output, without the batch

    @property
    def lipschitz(self) -> float:
        """√(largest number of windows that share an entry): an entry may be the maximum of each of them."""
        return math.sqrt(int(torch.bincount(self.windows[self.windows >= 0]).max()))

    def forward(self, x: Tensor) -> Tensor:
        """The maxima of samples; the first of equal entries wins."""
        entries = self.entries(x)
        position = entries.detach().argmax(dim=2, keepdim=True)
        return entries.gather(2, position).reshape(len(x), *self.shape)

    def pattern(self, x: Tensor) -> Tensor:
        """The position in its window of each maximum: int64, of the shape of the output."""
        return self.entries(x).argmax(dim=2).reshape(len(x), *self.shape)

    def rivals(self, stack: Tensor) -> Tensor:
        """The entries of each window, as `[cells, k, units, positions]`; padding never wins."""
        entries = stack.flatten(2)[:, :, self.windows.clamp(min=0)]
        outside = self.windows < 0
        entries[:, :, outside] = 0.0
        entries[:, -1, outside] = -torch.inf
        return entries

    def stacked(self, stack: Tensor, winners: Tensor) -> Tensor:
        """The winning entry of each window, `winners[cell, unit]` being its position."""
        units = torch.arange(len(self.windows), device=stack.device)
        index = self.windows[units, winners]
        chosen = stack.flatten(2).gather(2, index[:, None, :].expand(-1, stack.shape[1], -1))
        return chosen.reshape(len(stack), stack.shape[1], *self.shape)

    def entries(self, x: Tensor) -> Tensor:
        """The entries of the windows of samples, `[batch, units, positions]`, −∞ for padding."""
        flat = x.flatten(1)
        padded = torch.cat((flat, torch.full_like(flat[:, :1], -torch.inf)), dim=1)
        return padded[:, self.windows]  # −1 reads the last column


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Σ_k weights[k]·h_k of inputs of one shape: the end of a residual block."""

    weights: tuple[float, ...]

    def forward(self, *inputs: Tensor) -> Tensor:
        """The sum of samples."""
        return torch.stack([weight * x for weight, x in zip(self.weights, inputs, strict=True)]).sum(dim=0)

    def stacked(self, *stacks: Tensor) -> Tensor:
        """The sum of stacks, whose rows and constants add up."""
        return self.forward(*stacks)


@dataclass(frozen=True, kw_only=True)
class RootMeanSquare:
    """c ↦ c/√(‖c‖²/size + eps) of every group of `size` entries in a row: the division of group and layer norm."""

    size: int
    eps: float

    def forward(self, x: Tensor) -> Tensor:
        """The divided samples."""
        groups = self.groups(x)
        return (groups / (groups.square().mean(dim=-1, keepdim=True) + self.eps).sqrt()).view(x.shape)

    def groups(self, x: Tensor) -> Tensor:
        """Samples as `[batch, groups, size]`."""
        return x.reshape(len(x), -1, self.size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Unread:
    """A layer of which no form is known; `lipschitz` is its l_2 constant, if that is known. `forward` is in float64."""

    lipschitz: float | None
    forward: Callable[..., Tensor]


Kink: TypeAlias = Slopes | MaxPool
"""A form with several pieces."""

Form: TypeAlias = Affine | Slopes | MaxPool
"""A form that is piecewise affine and has one input."""

Step: TypeAlias = Form | Sum | RootMeanSquare | Unread
"""Any step of a network."""


def double(tensor: Tensor) -> Tensor:
    """`tensor` in float64, without its graph."""
    return tensor.detach().double()


def zeros_like(x: Tensor) -> Tensor:
    """An input of zeros in float64, of the shape of one sample of `x`."""
    return torch.zeros(1, *x.shape[1:], dtype=torch.float64, device=x.device)


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """`values` of channels in a shape that broadcasts against samples of `x`."""
    return values.reshape(-1, *(1,) * (x.ndim - 2))
