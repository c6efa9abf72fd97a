"""Inside `vmap`, work on the stacked tensors themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def lowered(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """`function` of the tensors as they are outside of `vmap`, `[networks, ...]` each; autograd follows it as always.

    For operations whose form for many networks is known better than `vmap` knows it. Outside of `vmap` there are no
    such tensors, and it may not be called.
    """
    result: Tensor = _Lowered.apply(function, *tensors)
    return result


class _Lowered(torch.autograd.Function):
    """Only its rule for `vmap` is used: what runs in there is recorded by autograd below, operation by operation."""

    @staticmethod
    def forward(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:  # noqa: ARG004
        raise RuntimeError(f"{function} was to run on stacked tensors, but there is no vmap around it")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: `forward` never runs."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], function: Callable[..., Tensor], *tensors: Tensor | None
    ) -> tuple[Tensor, int]:
        stacked = [_at_front(tensor, dim, info.batch_size) for tensor, dim in zip(tensors, in_dims[1:])]
        return function(*stacked), 0


def _at_front(tensor: Tensor | None, dim: int | None, count: int) -> Tensor | None:
    if tensor is None:
        return None
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
