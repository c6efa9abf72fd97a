"""Slow, obvious versions of the NN-GP model: integrals over Gaussian weights, and plain algebra of many digits."""

from __future__ import annotations

import mpmath
import torch
from torch import Tensor


def circle(*degrees: float) -> Tensor:
    """Points of the sphere of radius √2 in the plane, at these angles."""
    angles = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return 2**0.5 * torch.stack([angles.cos(), angles.sin()], dim=1)


def sphere(n: int, d: int, seed: int) -> Tensor:
    """Random points of the sphere of radius √d."""
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x * (d**0.5 / x.norm(dim=1, keepdim=True))


def covariance(t: mpmath.mpf, depth: int) -> mpmath.mpf:
    """Covariance of two outputs of an infinitely wide network with φ = √2·ReLU, layer by layer as an integral."""
    for _ in range(depth - 1):
        t = hidden_layer(t)
    return t


def hidden_layer(t: mpmath.mpf) -> mpmath.mpf:
    """E[φ(u)·φ(v)] over standard normal u and v of correlation t, −1 < t < 1, v integrated first by its closed form."""
    rest = mpmath.sqrt(1 - t * t)

    def inner(u: mpmath.mpf) -> mpmath.mpf:  # E[max(v, 0) | u], v ~ N(t·u, 1 − t²)
        return t * u * mpmath.ncdf(t * u / rest) + rest * mpmath.npdf(t * u / rest)

    return 2 * mpmath.quad(lambda u: u * mpmath.npdf(u) * inner(u), [0, 1, 2, 4, 8, 16])


def h(t: mpmath.mpf) -> mpmath.mpf:
    """As the paper prints it, in mpmath's precision."""
    return (mpmath.sqrt(1 - t * t) + t * (mpmath.pi - mpmath.acos(t))) / mpmath.pi


def posterior(train_x: Tensor, train_y: Tensor, test_x: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """C_1 and C_2 by the matrix inverse, number by number, in 40 digits."""
    with mpmath.workdps(40):
        train, test = ([mpmath.matrix(row) for row in x.tolist()] for x in (train_x, test_x))
        gram = mpmath.matrix([[entry(a, b, depth) for b in train] for a in train])
        cross = mpmath.matrix([[entry(a, b, depth) for b in train] for a in test])
        prior = mpmath.matrix([[entry(a, b, depth) for b in test] for a in test])
        inverse = gram**-1
        c1 = cross * inverse * mpmath.matrix(train_y.tolist())
        c2 = prior - cross * inverse * cross.T
        return as_tensor(c1).squeeze(1), as_tensor(c2)


def entry(a: mpmath.matrix, b: mpmath.matrix, depth: int) -> mpmath.mpf:
    t = (a.T * b)[0] / mpmath.sqrt((a.T * a)[0] * (b.T * b)[0])
    t = min(mpmath.mpf(1), max(mpmath.mpf(-1), t))
    for _ in range(depth - 1):
        t = h(t)
    return t


def as_tensor(matrix: mpmath.matrix) -> Tensor:
    return torch.tensor([[float(value) for value in row] for row in matrix.tolist()], dtype=torch.float64)
