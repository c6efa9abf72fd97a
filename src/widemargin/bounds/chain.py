"""A network as the theorems see it: a chain of linear operators with activations and pools between them.

A product of norms bounds a network only where its layers follow each other, once each: so only nested `nn.Sequential`s
are taken, of layers whose constants are known, and the first other layer is named in the error. Convolutions are the
linear operators they are on the images that reach them, never their kernels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from widemargin import norms
from widemargin.bounds.result import Assumption
from widemargin.margins.normalized import Biases
from widemargin.modules import evaluating, floating_parameter, uncompiled, unwrap

_CONVOLVE: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
}
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHTED = (nn.Linear, *_CONVOLUTIONS)
SHAPES = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_AVERAGES = (
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Link:
    """A layer of a chain, on inputs of `shape` (without the batch).

    `lipschitz` is its l_2 Lipschitz constant: of a weight layer the operator norm ‖W‖_2. A pool whose windows overlap
    has one of its own above 1: an entry may be the maximum of several windows.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    units: int
    lipschitz: float
    is_weight: bool

    @property
    def weight(self) -> Tensor:
        """The matrix or kernel, in float64."""
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        return weight.detach().double()

    def row_norms(self, weight: Tensor) -> Tensor:
        """The l_2 norm of every row of the linear operator that this layer would be with `weight` for its own."""
        if isinstance(self.module, nn.Linear):
            return torch.linalg.vector_norm(weight, dim=1).repeat(math.prod(self.shape[:-1]))
        m: Any = self.module
        # A row holds the kernel's entries that fall on the image, each once: their squares add up to a convolution.
        ones = weight.new_ones(1, *self.shape)
        squares = _CONVOLVE[type(m)](ones, weight.square(), None, m.stride, m.padding, m.dilation, m.groups)
        return squares.flatten().sqrt()

    @property
    def frobenius(self) -> float:
        """‖W‖_F of the operator; of a convolution larger than its kernel's, since every position has a row."""
        return float(torch.linalg.vector_norm(self.row_norms(self.weight)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """The layers in their order."""

    links: tuple[Link, ...]

    @property
    def weights(self) -> tuple[Link, ...]:
        """The linear and convolutional layers."""
        return tuple(link for link in self.links if link.is_weight)

    @property
    def factor(self) -> float:
        """The product of the Lipschitz constants between the weight layers: 2^{(L−1)/2} for √2·ReLU (farhang, 11)."""
        return math.prod((link.lipschitz for link in self.links if not link.is_weight), start=1.0)

    @property
    def no_biases(self) -> Assumption:
        """The theorems write f = W_L φ(W_{L−1} ⋯ φ(W_1 x))."""
        biased = sum(link.module.bias is not None for link in self.weights)
        return Assumption(text="the network has no biases", holds=biased == 0, found=f"{biased} layers have one")


def chain_of(model: nn.Module, x: Tensor, *, biases: Biases = "refuse", batch_norm: bool = False) -> Chain:
    """The chain that `model` is on inputs like `x`, or one sentence about the first layer that does not fit.

    Args:
        model: nested `nn.Sequential`s of Linear, Conv, ReLU, LeakyReLU, pools and changes of shape, or any layer
            without parameters that tells its l_2 Lipschitz constant in an attribute `lipschitz`.
        x: inputs; one of them is run.
        biases: refuse a network with biases, or leave them out of the norms.
        batch_norm: take BatchNorm in evaluation mode, an affine layer, as a link too.
    """
    if biases not in ("refuse", "ignore"):
        raise ValueError(f"biases is {biases!r}, expected 'refuse' or 'ignore'")
    network = unwrap(model)
    if not isinstance(x, Tensor) or x.ndim < 2 or not len(x):
        what = f"shape {list(x.shape)}" if isinstance(x, Tensor) else f"type {type(x).__name__}"
        raise ValueError(f"x has {what}, expected a tensor [batch, ...] of at least one input")
    links = []
    with evaluating(network), uncompiled(network), torch.no_grad():
        h = like_weights(network, x[:1])
        for name, module in layers(network):
            _check(name, module, biases, batch_norm)
            after = module(h)
            links.append(_link(name, module, h, after))
            h = after
    chain = Chain(links=tuple(links))
    if not chain.weights or not links[-1].is_weight:
        last = f"ends in a {type(links[-1].module).__name__}" if links else "has no layers"
        raise ValueError(f"the network {last}, expected a chain that ends in a Linear or Conv layer")
    return chain


def layers(network: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Name and module of every layer of nested `nn.Sequential`s, in the order they run."""
    if type(network) is not nn.Sequential:
        yield prefix, network
        return
    for name, child in network._modules.items():  # named_children would leave out a module that runs twice
        assert child is not None
        yield from layers(child, f"{prefix}.{name}" if prefix else name)


def like_weights(network: nn.Module, x: Tensor) -> Tensor:
    """`x` on the device and in the dtype of the network."""
    weight = floating_parameter(network)
    return x if weight is None else x.to(weight.device, weight.dtype)


def _check(name: str, module: nn.Module, biases: Biases, batch_norm: bool) -> None:
    known = (*_WEIGHTED, *SHAPES, *_MAX_POOLS, *_AVERAGES, nn.ReLU, nn.LeakyReLU)
    if isinstance(module, _BatchNorm) and batch_norm:
        if module.running_var is None:
            raise TypeError(f"layer {name!r} keeps no running statistics, so it is not an affine layer in evaluation")
        return
    if type(module) not in known and (not hasattr(module, "lipschitz") or next(module.parameters(), None) is not None):
        raise TypeError(
            f"layer {name!r} is a {type(module).__name__}, for which bounds know no constant: expected nn.Sequential "
            f"of Linear, Conv, ReLU, LeakyReLU, pools and flatten{', BatchNorm' if batch_norm else ''}, or a layer "
            "without parameters that has an attribute lipschitz"
        )
    if isinstance(module, _CONVOLUTIONS) and module.padding_mode != "zeros":
        raise TypeError(f"layer {name!r} has padding_mode {module.padding_mode!r}, expected 'zeros'")
    if isinstance(module, _WEIGHTED) and module.bias is not None and biases == "refuse":
        raise ValueError(
            f"layer {name!r} has a bias, which this theorem does not count: build the network without biases, or pass "
            "biases='ignore'"
        )


def _link(name: str, module: nn.Module, h: Tensor, after: Tensor) -> Link:
    is_weight = isinstance(module, _WEIGHTED)
    if is_weight:
        constant = float(norms.spectral_of_layer(copy.deepcopy(module).double(), h.shape[1:]))
        if not constant > 0:
            raise ValueError(f"layer {name!r} has a weight of norm {constant}, for which no bound is defined")
    else:
        constant = _constant(module, h)
    return Link(
        name=name,
        module=module,
        shape=tuple(h.shape[1:]),
        units=after[0].numel(),
        lipschitz=constant,
        is_weight=is_weight,
    )


def _constant(module: nn.Module, h: Tensor) -> float:
    if isinstance(module, nn.LeakyReLU):
        return max(1.0, abs(module.negative_slope))
    if isinstance(module, _BatchNorm):
        assert module.running_var is not None
        scale = (module.running_var.double() + module.eps).rsqrt()
        return float((scale if module.weight is None else scale * module.weight.detach().double()).abs().max())
    if isinstance(module, _MAX_POOLS):
        return math.sqrt(math.prod(_windows(module, h.ndim - 2)))
    if isinstance(module, _AVERAGES):
        return _schur(module, h)
    return float(getattr(module, "lipschitz", 1.0))


def _windows(pool: Any, dimensions: int) -> list[int]:
    """In how many windows an entry may lie, along each dimension: those at t with dilation·t ≡ const mod stride."""
    sizes = []
    for axis in range(dimensions):
        kernel, stride, dilation = (
            value if isinstance(value, int) else value[axis]
            for value in (pool.kernel_size, pool.stride or pool.kernel_size, pool.dilation)
        )
        sizes.append(math.ceil(kernel * math.gcd(dilation, stride) / stride))
    return sizes


def _schur(pool: nn.Module, h: Tensor) -> float:
    """‖A‖_2 ≤ √(largest row sum · largest column sum) of a linear map without negative entries (Schur's test)."""
    with torch.enable_grad():
        ones = torch.ones_like(h, dtype=torch.float64, requires_grad=True)
        rows = pool(ones)
        (columns,) = torch.autograd.grad(rows.sum(), ones)
    return math.sqrt(float(rows.detach().max()) * float(columns.max()))
