"""Norms: l_p and its dual per sample, Frobenius, (2,1), and the spectral norm of matrices and convolutions."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from widemargin._cuda import has_triton
from widemargin.checks import check_batch, check_counts, check_floating, check_module
from widemargin.types import HALF, PerExample, wide

_STEPS = 200
_FAILURE = 1e-9


def dual(p: float) -> float:
    """The q with 1/p + 1/q = 1: l_q is the dual norm of l_p (elsayed, eq. 7). 1 ↔ ∞, 2 ↔ 2."""
    check_p(p)
    if p == 1:
        return math.inf
    return 1.0 if p == math.inf else p / (p - 1)


def check_p(p: float) -> None:
    """Raise unless `p` is a real number in [1, ∞], where l_p is a norm."""
    if isinstance(p, bool) or not isinstance(p, numbers.Real):
        raise TypeError(f"p is {p!r}, expected a real number in [1, inf]")
    if not p >= 1:
        raise ValueError(f"p is {p}, expected a real number in [1, inf]")


def lp(x: Float[Tensor, "batch ..."], p: float) -> PerExample:
    """‖x_k‖_p = (Σ |x_kj|^p)^(1/p) of every sample, over all its other dimensions; max |x_kj| for p = ∞.

    No power overflows or underflows: rows are divided by their largest entry first, or for p = 2 on a GPU squares are
    summed in float64. Half precision is summed in float32. The gradient at 0 is defined as 0.
    """
    check_p(p)
    _check_rows(x, "x")
    if p == 2 and x.is_cuda and has_triton():
        from widemargin._cuda import norm_kernels

        if norm_kernels.supports(x):
            return norm_kernels.l2(x)
    rows = wide(x.flatten(1) if x.ndim > 1 else x[:, None])
    if p == 1:
        return rows.abs().sum(dim=1)
    if p == math.inf:
        return rows.abs().amax(dim=1)
    # Detached: by homogeneity the gradient is correct without it. Clamped, so that rows of zeros and rows with an
    # infinite entry do not become NaN. Few kernels, since small networks are bound by launches.
    span = torch.finfo(rows.dtype)
    unit = torch.linalg.vector_norm(rows.detach(), math.inf, dim=1, keepdim=True).clamp_(span.tiny, span.max)
    return torch.linalg.vector_norm(rows / unit, p, dim=1) * unit[:, 0]


def steepest(gradient: Float[Tensor, "batch ..."], p: float) -> Float[Tensor, "batch ..."]:
    """The u of every sample with ‖u‖_p = 1 along which ⟨u, gradient⟩ is largest: ‖gradient‖_q; 0 where it is 0.

    gradient/‖gradient‖_2 for p = 2, its signs for p = ∞, and its largest entry alone for p = 1.
    """
    check_p(p)
    _check_rows(gradient, "gradient")
    rows = wide(gradient.flatten(1) if gradient.ndim > 1 else gradient[:, None])
    largest = rows.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    if p == math.inf:
        u = rows.sign()
    elif p == 1:
        first = rows.abs().argmax(dim=1, keepdim=True)
        u = torch.zeros_like(rows).scatter(1, first, rows.gather(1, first).sign())
    else:
        u = rows / largest  # no power overflows
        u = u if p == 2 else u.sign() * u.abs() ** (dual(p) - 1)
        u = u / lp(u, p)[:, None].clamp_min(torch.finfo(rows.dtype).tiny)
    return u.view(gradient.shape)


def frobenius(weight: Tensor) -> Tensor:
    """‖W‖_F = √(Σ W_ij²), over all entries of a matrix or kernel."""
    _check_rows(weight, "weight", least=0)
    return torch.linalg.vector_norm(weight)


def two_one(weight: Tensor) -> Tensor:
    """‖Wᵀ‖_{2,1}: the sum of the l_2 norms of the rows of W (farhang Def. 3.2; errata 9).

    A row belongs to one output unit: for a convolution, the kernel of one output channel.
    """
    _check_rows(weight, "weight")
    return torch.linalg.vector_norm(weight.flatten(1), dim=1).sum()


def spectral(weight: Float[Tensor, "rows columns"]) -> Tensor:
    """‖W‖_σ: the largest singular value of a matrix, by SVD, or by Lanczos when the matrix is large."""
    check_batch(weight, "weight")
    return _spectral(wide(weight.detach()), largest_singular_value)


def spectral_upper_bound(weight: Float[Tensor, "rows columns"]) -> Tensor:
    """An upper bound of ‖W‖_σ in float64: within 1e-12 by SVD, or `singular_value_upper_bound` of a large matrix."""
    check_batch(weight, "weight")
    return _spectral(weight.detach().double(), singular_value_upper_bound) * (1 + 1e-12)


def spectral_of_layer(layer: nn.Module, input_shape: Sequence[int]) -> Tensor:
    """The operator norm of a linear layer, without its bias, on inputs of `input_shape` (without the batch).

    A convolution is the linear operator with its stride, padding and dilation on images of that size, not its kernel
    reshaped to a matrix, whose norm can be several times smaller. Computed in float32 at least, also under autocast.
    """
    check_module(layer, "layer")
    check_counts("input_shape", tuple(input_shape) if isinstance(input_shape, torch.Size) else input_shape)
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor):
        raise TypeError(f"layer is a {type(layer).__name__}, expected a linear layer with a weight")
    if weight.ndim == 2:
        return spectral(weight)
    if weight.dtype in HALF:
        return spectral_of_layer(copy.deepcopy(layer).float(), input_shape)
    start = weight.new_ones(1, *input_shape)

    def forward(v: Tensor) -> Tensor:
        with torch.no_grad():
            return layer(v.view_as(start)).sub(offset).flatten()

    def adjoint(u: Tensor) -> Tensor:
        with torch.enable_grad():
            v = torch.zeros_like(start, requires_grad=True)
            (grad,) = torch.autograd.grad(layer(v), v, u.view_as(offset))
        return grad.flatten()

    with torch.autocast(weight.device.type, enabled=False):
        offset = layer(torch.zeros_like(start)).detach()
        return largest_singular_value(forward, adjoint, start.flatten())


def largest_singular_value(
    forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], like: Tensor, *, steps: int = _STEPS
) -> Tensor:
    """The largest singular value of a linear map given by its products with vectors.

    Golub-Kahan-Lanczos bidiagonalisation with full reorthogonalisation: the value increases to the largest singular
    value, and the iteration stops once it no longer increases at the precision of the dtype. The start vector has a
    fixed seed, so that the same map always has the same norm.
    """
    return _lanczos(forward, adjoint, like, steps)[0]


def singular_value_upper_bound(
    forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], like: Tensor
) -> Tensor:
    """An upper bound of the largest singular value of a linear map, for certificates.

    The value of `largest_singular_value` times 1 + 1e-6 where the iteration settles. Where it ends at the limit of k
    steps, it is also divided by √(1 − ε): on a symmetric n × n matrix, here WᵀW, the largest eigenvalue has a relative
    error > ε with probability at most 1.648·√n·exp(−√ε·(2k − 1)) (Kuczyński & Woźniakowski, SIAM J. Matrix Anal. Appl.
    1992, Theorem 4.2). ε is the error of probability 1e-9. The probability is over the start vector, a normal one whose
    fixed seed does not depend on the weights.
    """
    value, is_settled = _lanczos(forward, adjoint, like, _STEPS)
    root = 0.0 if is_settled else math.log(1.648 * math.sqrt(like.numel()) / _FAILURE) / (2 * _STEPS - 1)
    return value * (1 + 1e-6) / math.sqrt(1 - root**2)


def _spectral(w: Tensor, of_map: Callable[..., Tensor]) -> Tensor:
    if min(w.shape) <= 1024:
        return torch.linalg.matrix_norm(w, ord=2)
    with torch.autocast(w.device.type, enabled=False):
        return of_map(lambda v: w @ v, lambda u: w.T @ u, w.new_ones(w.shape[1]))


def _lanczos(
    forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], like: Tensor, steps: int
) -> tuple[Tensor, bool]:
    """The value after at most `steps` steps, and whether it settled or the whole space was searched."""
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)
    eps = torch.finfo(v.dtype).eps
    right, left = [v / v.norm()], []
    u = forward(right[0])
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    value, settled = like.new_zeros(()), 0
    for _ in range(min(steps, like.numel())):
        alpha = u.norm()
        if alpha <= eps * value:
            return value, True
        left.append(u / alpha)
        w = _orthogonal(adjoint(left[-1]), right)
        beta = w.norm()
        diagonal.append(alpha)
        beside.append(beta)
        # k × (k + 1): without the last β, a map onto fewer than numel dimensions would be underestimated.
        bidiagonal = pad(torch.diag(torch.stack(diagonal)), (0, 1)) + pad(torch.diag(torch.stack(beside)), (1, 0))
        new = torch.linalg.matrix_norm(bidiagonal, ord=2)
        settled = settled + 1 if new - value <= 4 * eps * new else 0
        value = new
        if settled >= 3 or beta <= eps * value:
            return value, True
        right.append(w / beta)
        u = _orthogonal(forward(right[-1]) - beta * left[-1], left)
    return value, like.numel() <= steps


def _check_rows(x: Tensor, name: str, *, least: int = 1) -> None:
    """Raise unless `x` has rows of real numbers; values are not checked: norms are taken in training steps."""
    check_floating(x, name, "[batch, ...]")
    if x.ndim < least:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected [batch, ...]")


def _orthogonal(v: Tensor, basis: list[Tensor]) -> Tensor:
    columns = torch.stack(basis)
    v = v - columns.T @ (columns @ v)
    return v - columns.T @ (columns @ v)  # twice, for orthogonality up to rounding
