"""The derivative of a norm along many directions at once, as one operation that keeps no copies of its input.

x ↦ w·(x − mean)/std of a group of numbers moves along u by w·(u − mean(u) − x̂·mean(x̂·u))/std, x̂ = (x − mean)/std.
`vmap` would hand each direction a copy of x; the operation here has a rule of its own, by which all read the same one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin._cuda import runtime

_SCHEMA = "(Tensor directions, Tensor x, Tensor mean, Tensor rstd, Tensor? weight) -> Tensor"


@torch.library.custom_op("widemargin::norm_along", mutates_args=(), schema=_SCHEMA)
def along(directions: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    """Of `directions` `[some · rows, channels, pixels]` at `x` `[rows, channels, pixels]`.

    `mean` and `rstd` (1/std) are `[rows, groups]`, of groups of channels that follow one another; `weight` is of
    channels.
    """
    if _is_for_the_kernel(directions, x, mean, rstd, weight):
        from widemargin._cuda import norm_jvp_kernel

        return norm_jvp_kernel.along(directions, x, mean, rstd, weight)
    rows, groups = mean.shape
    u, x = directions.reshape(-1, rows, groups, x[0].numel() // groups), x.reshape(rows, groups, -1)
    rstd = rstd[:, :, None]
    x = (x - mean[:, :, None]) * rstd
    moved = (u - u.mean(dim=-1, keepdim=True) - x * (u * x).mean(dim=-1, keepdim=True)) * rstd
    moved = moved.reshape(directions.shape)
    return (moved if weight is None else moved * weight[:, None]).to(directions.dtype)


def _is_for_the_kernel(*tensors: Tensor | None) -> bool:
    given = [tensor for tensor in tensors if tensor is not None]
    return runtime.has_triton() and all(
        tensor.is_cuda and tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in given
    )


@along.register_vmap
def _of_many(info, in_dims, directions, x, mean, rstd, weight):  # type: ignore[no-untyped-def]
    """All directions as so many more rows; what else there is many of joins them, and x is then repeated for it."""
    some = info.batch_size
    of_directions, *others, of_weight = in_dims
    if of_weight is not None:
        raise RuntimeError("no rule for a norm of many weights")
    if any(dim is not None for dim in others):
        x, mean, rstd = (_rows(tensor, dim, some) for tensor, dim in zip((x, mean, rstd), others))
    found = along(_rows(directions, of_directions, some), x, mean, rstd, weight)
    return found.unflatten(0, (some, len(found) // some)), 0


def _rows(tensor: Tensor, dim: int | None, some: int) -> Tensor:
    many = tensor.expand(some, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return many.reshape(-1, *many.shape[2:])
