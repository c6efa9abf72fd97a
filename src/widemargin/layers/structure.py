"""Rules of layers that move entries or are the identity in evaluation mode: flatten, identity, dropout."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from widemargin.layers.forms import Affine, zeros_like
from widemargin.layers.registry import register


class Reshape(nn.Module):
    """Samples in another `shape`, as a network may write it between its modules."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """The same entries in the shape `[batch, *shape]`."""
        return x.reshape(len(x), *self.shape)


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


@register("lipschitz", *_RESHAPES, *_PASSES)
def lipschitz(_: nn.Module, __: Tensor) -> float:
    """1."""
    return 1.0
