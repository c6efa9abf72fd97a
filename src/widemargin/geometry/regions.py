"""The region of a point: its activation pattern, its affine map and its Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin.geometry.network import Network, read
from widemargin.layers.forms import Affine


@dataclass(frozen=True, kw_only=True)
class AffineMap:
    """f(x) = F·x + d on the region of each sample: `F` is `[batch, outputs, *input]`, `d` is `[batch, outputs]`."""

    F: Tensor
    d: Tensor

    def __call__(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch outputs"]:
        """F·x + d, sample by sample."""
        return torch.einsum("bon,bn->bo", self.F.flatten(2), x.double().flatten(1)) + self.d


def pattern(model: nn.Module, x: Float[Tensor, "batch ..."]) -> dict[str, Shaped[Tensor, "batch ..."]]:
    """The piece of each unit: per activation whether h > 0, per max-pool the position of the maximum in its window.

    Source: sokolic §III-A, the matrices S_l(x) of (6). At h = 0 a unit counts as not active. Two points of one pattern
    lie in one region, which is convex.
    """
    network = read(model, x)
    x = network.double(x)
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, step in zip(network.names, network.steps):
            if not isinstance(step, Affine):
                found[name] = step.pattern(x)
            x = step.forward(x)
    return found


def affine(model: nn.Module, x: Float[Tensor, "batch ..."]) -> AffineMap:
    """F(x) and d(x) with f(x′) = F·x′ + d for every x′ in the region of x (sokolic (6)), in float64.

    Erratum 1 of sokolic: the products run from layer L down to 1; F is applied as it stands here (the paper's is its
    transpose). f is the whole `model`: for features without their classifier, give the network without its last layer.
    """
    network = read(model, x)
    x = network.double(x)
    F = jacobians(network, x)
    with torch.no_grad():
        d = network.forward(x) - torch.einsum("bon,bn->bo", F.flatten(2), x.flatten(1))
    return AffineMap(F=F, d=d)


def jacobian(model: nn.Module, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch outputs ..."]:
    """J(x) = Π_i S_i(x) W_i, from layer L down to 1 (sokolic (7)), `[batch, outputs, *input]`, in float64.

    It is constant on a region (erratum 1: the paper says piecewise linear), and equals F(x) of (6).
    """
    network = read(model, x)
    return jacobians(network, network.double(x))


def jacobians(network: Network, x: Tensor) -> Tensor:
    """J of samples in float64: one backward pass per output, whose samples do not mix."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = network.forward(x)
        if not y.requires_grad:  # no step at all
            return torch.zeros(*y.shape, *x.shape[1:], dtype=y.dtype, device=y.device)
        rows = [torch.autograd.grad(y[:, o].sum(), x, retain_graph=True)[0] for o in range(y.shape[1])]
    return torch.stack(rows, dim=1)
