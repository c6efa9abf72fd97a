"""Jacobian-vector products of normalisation layers along many directions, as one operation.

The derivative of x ↦ w·(x − mean)/std over a group along u is w·(u − mean(u) − x̂·mean(x̂·u))/std, x̂ = (x − mean)/std.
`vmap` would copy x for each direction; this operation has a batching rule in which all directions read the same x.
"""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin._cuda import has_triton

_SCHEMA = "(Tensor directions, Tensor x, Tensor mean, Tensor rstd, Tensor? weight) -> Tensor"


@torch.library.custom_op("widemargin::norm_jvp", mutates_args=(), schema=_SCHEMA)
def norm_jvp(directions: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    """The derivative at `x` `[rows, channels, pixels]` along `directions` `[some · rows, channels, pixels]`.

    `mean` and `rstd` (1/std) are `[rows, groups]`, for groups of consecutive channels; `weight` is `[channels]`.
    """
    if _kernel_supports(directions, x, mean, rstd, weight):
        from widemargin._cuda import norm_kernels

        return norm_kernels.norm_jvp(directions, x, mean, rstd, weight)
    rows, groups = mean.shape
    u, x = directions.reshape(-1, rows, groups, x[0].numel() // groups), x.reshape(rows, groups, -1)
    rstd = rstd[:, :, None]
    x = (x - mean[:, :, None]) * rstd
    moved = (u - u.mean(dim=-1, keepdim=True) - x * (u * x).mean(dim=-1, keepdim=True)) * rstd
    moved = moved.reshape(directions.shape)
    return (moved if weight is None else moved * weight[:, None]).to(directions.dtype)


def _kernel_supports(*tensors: Tensor | None) -> bool:
    return has_triton() and all(
        t is None or (t.is_cuda and t.dtype == torch.float32 and t.is_contiguous()) for t in tensors
    )


@norm_jvp.register_vmap
def _norm_jvp_vmap(info, in_dims, directions, x, mean, rstd, weight):  # type: ignore[no-untyped-def]
    """Batched directions become more rows; if x is batched too, it becomes more rows along with them."""
    size = info.batch_size
    directions_dim, *other_dims, weight_dim = in_dims
    if weight_dim is not None:
        raise RuntimeError("no batching rule for a batch of weights")
    if any(dim is not None for dim in other_dims):
        x, mean, rstd = (_rows(tensor, dim, size) for tensor, dim in zip((x, mean, rstd), other_dims))
    moved = norm_jvp(_rows(directions, directions_dim, size), x, mean, rstd, weight)
    return moved.unflatten(0, (size, len(moved) // size)), 0


def _rows(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    batched = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return batched.reshape(-1, *batched.shape[2:])
