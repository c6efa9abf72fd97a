"""Patterns, affine maps and Jacobians of piecewise affine networks at points, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin import layers
from widemargin.layers.forms import MaxPool, Slopes, Sum
from widemargin.layers.network import PIECEWISE, Network
from widemargin.layers.trace import INPUT


def read(model: nn.Module, x: Tensor) -> Network:
    """The affine maps, kinks and sums that `model` consists of on `x`.

    Raises:
        TypeError: a layer of the network is not supported, or its operations can't be followed, see `layers.trace`.
    """
    network = layers.network.read(model, x)
    network.require(*PIECEWISE, Sum)
    return network


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
        values = {INPUT: x, **dict(enumerate(network.values(x)))}
        for name, step, sources in zip(network.names, network.steps, network.inputs):
            if isinstance(step, (Slopes, MaxPool)):
                found[name] = step.pattern(values[sources[0]])
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
