"""Rules of layers without weights: changes of shape, dropout in evaluation mode, sums, constant factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from widemargin.layers.forms import Affine, Step, Sum, double, zeros_like
from widemargin.layers.registry import form_of, register


class Reshape(nn.Module):
    """Samples in another `shape`, as a network may write it between its modules."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """The same entries in the shape `[batch, *shape]`."""
        return x.reshape(len(x), *self.shape)


class Entries(nn.Module):
    """A linear map without negative entries, by a function of batches: means, sums, parts and padding of images.

    `moves`: it only moves entries.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], *, moves: bool = False) -> None:
        super().__init__()
        self.function, self.moves = function, moves

    def forward(self, x: Tensor) -> Tensor:
        """The mapped samples."""
        return self.function(x)


class Rescale(nn.Module):
    """factor·x + offset, entry by entry; both are shaped to broadcast against one sample."""

    factor: Tensor
    offset: Tensor

    def __init__(self, factor: Tensor, offset: Tensor) -> None:
        super().__init__()
        for name, value in (("factor", factor), ("offset", offset)):
            if value.requires_grad:
                self.register_parameter(name, value if isinstance(value, nn.Parameter) else nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """The rescaled samples."""
        return x * self.factor + self.offset


class Add(nn.Module):
    """The weighted sum of several inputs of one shape."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        self.weights = tuple(float(weight) for weight in weights)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The sum."""
        return Sum(weights=self.weights).forward(*inputs)


_RESHAPES = (nn.Flatten, nn.Unflatten, Reshape)
_PASSES = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@register("affine", *_RESHAPES)
def reshape(module: nn.Module, x: Tensor) -> Affine:
    """The same entries in another shape."""
    return Affine(zeros=zeros_like(x), linear=module.forward, moves=True)


@register("affine", *_PASSES)
def identity(_: nn.Module, x: Tensor) -> Affine:
    """x in evaluation mode."""
    return Affine(zeros=zeros_like(x), linear=lambda v: v, moves=True)


@register("affine", Entries)
def entries(module: Entries, x: Tensor) -> Affine:
    """A matrix without negative entries."""
    return Affine(zeros=zeros_like(x), linear=module.function, moves=module.moves)


@register("affine", Rescale)
def rescale(module: Rescale, x: Tensor) -> Affine:
    """A diagonal matrix."""
    return diagonal(double(module.factor), double(module.offset), x)


def diagonal(factor: Tensor, offset: Tensor | None, x: Tensor) -> Affine:
    """factor·x + offset, both shaped to broadcast against one sample of `x`."""
    zeros = zeros_like(x)
    return Affine(
        zeros=zeros,
        linear=lambda v: v * factor,
        bias=offset,
        transposed=lambda rows: rows * factor,
        row_norms=lambda _, of: (factor if of is None else of).abs().expand(zeros.shape[1:]),
        norm=float(factor.abs().max()),
        diagonal=True,
    )


@register("steps", Add)
def add(module: Add, _: Tensor) -> tuple[Step, ...]:
    """A sum of several inputs."""
    return (Sum(weights=module.weights),)


@register("lipschitz", Entries, Rescale)
def operator(module: nn.Module, x: Tensor) -> float:
    """‖W‖_2."""
    form = form_of(module, x)
    assert form is not None
    with torch.no_grad():
        return form.lipschitz


@register("lipschitz", *_RESHAPES, *_PASSES)
def lipschitz(_: nn.Module, __: Tensor) -> float:
    """1."""
    return 1.0
