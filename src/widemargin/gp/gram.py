"""The Cholesky factor of the training points' Gram matrix, computed in the memory of one matrix."""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor

from widemargin.gp.kernel import kernel_into

PANEL = 512  # rows of the Gram matrix computed at once


def factor(unit: Float64[Tensor, "n d0"], depth: int, jitter: float) -> Float64[Tensor, "n n"]:
    """L with L·Lᵀ = Σ̂_XX + jitter·I, lower triangular; raises where that matrix is singular to rounding.

    One matrix of n² numbers is allocated: one triangle of the Gram matrix is computed and factored in place. A pivot
    is the variance of a point given those before it, at most 1 + jitter; below `smallest_pivot` it is mostly rounding,
    and the solution would be noise.
    """
    n = len(unit)
    least = smallest_pivot(n)
    if jitter < least:  # these failures are detected without computing the matrix
        _raise_duplicates(duplicates(unit), jitter)
        if depth == 1 and n > unit.shape[1]:
            _raise_singular(unit, depth, jitter, unit.shape[1])
    matrix = torch.empty(n, n, dtype=torch.float64, device=unit.device)
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        kernel_into(matrix[start:stop, start:], unit[start:stop], unit[start:], depth)
    matrix.diagonal().fill_(1.0 + jitter)
    lower = matrix.mT  # column-major, as LAPACK factors in place without a copy
    info = torch.empty((), dtype=torch.int32, device=unit.device)
    torch.linalg.cholesky_ex(lower, out=(lower, info))
    pivots = lower.diagonal().square()
    failed = int(info) - 1 if int(info) > 0 else int(pivots.argmin())
    if int(info) > 0 or float(pivots[failed]) < least:
        del matrix, lower
        _raise_singular(unit, depth, jitter, failed)
    return lower


def smallest_pivot(n: int) -> float:
    """The pivot below which the Gram matrix of n points counts as singular."""
    return max(1e-12, n * torch.finfo(torch.float64).eps)


def duplicates(unit: Float64[Tensor, "n d0"]) -> list[tuple[int, int]]:
    """Pairs of indices of the same point, the smaller first, each point paired with one copy of it.

    Duplicates are neighbours in the order of their products with a random direction, so not all pairs are compared.
    """
    direction = torch.randn(unit.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    keys, order = (unit @ direction.to(unit.device)).sort(stable=True)
    close = (keys.diff() <= 1e-12 * float(direction.norm())).nonzero().flatten()
    first, second = order[close], order[close + 1]
    same = (unit[first] - unit[second]).norm(dim=1) <= 1e-12
    pairs = torch.stack([torch.minimum(first, second), torch.maximum(first, second)], dim=1)[same]
    return sorted((int(i), int(j)) for i, j in pairs.tolist())


def _raise_duplicates(pairs: list[tuple[int, int]], jitter: float) -> None:
    if pairs:
        more = f" (the first of {len(pairs)} such pairs)" if len(pairs) > 1 else ""
        same = f"train_x has the same point at indices {pairs[0][0]} and {pairs[0][1]}{more}, so its Gram matrix is"
        raise ValueError(f"{same} singular with jitter = {jitter:g}: remove one, or pass a jitter such as 1e-6")


def _raise_singular(unit: Tensor, depth: int, jitter: float, failed: int) -> None:
    """Raise with the reason: the nearest point equals `failed` to rounding, or the points are dependent."""
    distance = (unit - unit[failed]).norm(dim=1)
    distance[failed] = torch.inf
    nearest = int(distance.argmin())
    if len(unit) > 1 and float(distance[nearest]) ** 2 / 2 <= smallest_pivot(len(unit)):
        _raise_duplicates([(min(nearest, failed), max(nearest, failed))], jitter)
    few = f", at which no more than d_0 = {unit.shape[1]} points are independent" if depth == 1 else ""
    singular = f"train_x has a Gram matrix that is singular in float64 at index {failed} with jitter = {jitter:g}"
    raise ValueError(f"{singular} and depth {depth}{few}: pass a larger jitter, such as {max(1e-6, 100 * jitter):g}")
