"""Operations on the stacked tensors of all networks, inside `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


def on_stacked(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """`function` of the stacked tensors `[networks, ...]`, differentiable by autograd.

    It replaces operations for which `vmap` has no fast rule, and may be called inside `vmap` only.
    """
    result: Tensor = _OnStacked.apply(function, *tensors)
    return result


@runtime_checkable
class _VmapInfo(Protocol):
    batch_size: int


class _OnStacked(torch.autograd.Function):
    """Only its rule for `vmap` is used; autograd records the operations inside of it."""

    @staticmethod
    def forward(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:  # noqa: ARG004
        raise RuntimeError(f"{function} needs stacked tensors, but is called outside of vmap")

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: Tensor) -> None:
        """Nothing is saved, since `forward` never runs."""

    @staticmethod
    def vmap(
        info: _VmapInfo, in_dims: tuple[int | None, ...], function: Callable[..., Tensor], *tensors: Tensor | None
    ) -> tuple[Tensor, int]:
        stacked = [_networks_first(tensor, dim, info.batch_size) for tensor, dim in zip(tensors, in_dims[1:])]
        return function(*stacked), 0


def _networks_first(tensor: Tensor | None, dim: int | None, count: int) -> Tensor | None:
    if tensor is None:
        return None
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
