"""Networks as chains of linear operators with activations and pools between them.

A product of norms bounds a network only if its layers follow each other, once each: only nested `nn.Sequential`s of
layers with known constants are accepted. A convolution is the linear operator on the images that reach it, not its
kernel.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from widemargin import layers
from widemargin.bounds.result import Assumption
from widemargin.checks import check_choice
from widemargin.layers.forms import Affine, RowNorms, Slopes
from widemargin.margins.normalized import Biases
from widemargin.modules import cast_input, evaluating, uncompiled, unwrap

_RELU = Slopes(negative=0.0, positive=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Link:
    """A layer of a chain, on inputs of `shape` (without the batch).

    `lipschitz` is its l_2 Lipschitz constant: for a layer with weights the operator norm ‖W‖_2. `row_norms` gives the
    l_q norm of every row of the linear operator, also with another weight in place of the layer's own. `is_plain`:
    a ReLU, or a layer that only moves entries.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    units: int
    lipschitz: float
    is_plain: bool
    row_norms: RowNorms | None = None

    @property
    def is_weight(self) -> bool:
        """Whether the layer has a weight."""
        return self.row_norms is not None

    @property
    def weight(self) -> Tensor:
        """The matrix or kernel, in float64."""
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        return weight.detach().double()

    @property
    def frobenius(self) -> float:
        """‖W‖_F of the operator; for a convolution larger than its kernel's, since every position has a row."""
        return float(torch.linalg.vector_norm(self.rows(self.weight)))

    def rows(self, weight: Tensor) -> Tensor:
        """The l_2 norm of every row of the linear operator with `weight` in place of the layer's own."""
        assert self.row_norms is not None
        return self.row_norms(2.0, weight)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerChain:
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


def chain_of(model: nn.Module, x: Tensor, *, biases: Biases = "refuse", batch_norm: bool = False) -> LayerChain:
    """The chain that `model` is on inputs like `x`; an error names the first layer that is not supported.

    Args:
        model: nested `nn.Sequential`s of Linear, Conv, ReLU, LeakyReLU, pools and changes of shape, or any layer
            without parameters that states its l_2 Lipschitz constant in an attribute `lipschitz`.
        x: inputs; one of them is run.
        biases: refuse a network with biases, or leave them out of the norms.
        batch_norm: accept BatchNorm in evaluation mode, an affine layer, as a link too.
    """
    check_choice("biases", biases, ("refuse", "ignore"))
    network = unwrap(model)
    if not isinstance(x, Tensor) or x.ndim < 2 or not len(x):
        what = f"shape {list(x.shape)}" if isinstance(x, Tensor) else f"type {type(x).__name__}"
        raise ValueError(f"x has {what}, expected a tensor [batch, ...] of at least one input")
    links = []
    with evaluating(network), uncompiled(network), torch.no_grad():
        h = cast_input(network, x[:1])
        for name, module in layers_of(network):
            after = module(h)
            links.append(_link(name, module, h, after, biases, batch_norm))
            h = after
    chain = LayerChain(links=tuple(links))
    if not chain.weights or not links[-1].is_weight:
        last = f"ends in a {type(links[-1].module).__name__}" if links else "has no layers"
        raise ValueError(f"the network {last}, expected a chain that ends in a Linear or Conv layer")
    return chain


def layers_of(network: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Name and module of every layer of nested `nn.Sequential`s, in the order they run.

    A subclass of `nn.Sequential` counts as one if it keeps its `forward`.
    """
    if type(network).forward is not nn.Sequential.forward:
        yield prefix, network
        return
    for name, child in network._modules.items():  # named_children would leave out a module that runs twice
        assert child is not None
        yield from layers_of(child, f"{prefix}.{name}" if prefix else name)


def _link(name: str, module: nn.Module, h: Tensor, after: Tensor, biases: Biases, batch_norm: bool) -> Link:
    operator_norm, affine = layers.rule("operator_norm", module), layers.rule("affine", module)
    form: Affine | None = None if affine is None else affine(module, h)
    row_norms = None
    if operator_norm is None or form is None:
        constant = _constant(name, module, h, batch_norm)
    else:
        if form.row_norms is None:
            raise TypeError(f"layer {name!r} has padding_mode {module.padding_mode!r}, expected 'zeros'")
        if form.bias is not None and biases == "refuse":
            raise ValueError(
                f"layer {name!r} has a bias, which this theorem does not count: build the network without biases, or "
                "pass biases='ignore'"
            )
        row_norms = form.row_norms
        constant = float(operator_norm(copy.deepcopy(module).double(), h.shape[1:]))
        if not constant > 0:
            raise ValueError(f"layer {name!r} has a weight of norm {constant}, for which no bound is defined")
    pieces = layers.rule("pieces", module)
    return Link(
        name=name,
        module=module,
        shape=tuple(h.shape[1:]),
        units=after[0].numel(),
        lipschitz=constant,
        is_plain=(form is not None and form.moves) or (pieces is not None and pieces(module, h) == _RELU),
        row_norms=row_norms,
    )


def _constant(name: str, module: nn.Module, h: Tensor, batch_norm: bool) -> float:
    """The Lipschitz constant of a layer without weights, or of BatchNorm."""
    lipschitz = layers.rule("lipschitz", module)
    normalizes = layers.rule("normalizes", module) is not None
    trained = next(module.parameters(), None) is not None
    if lipschitz is None or (not batch_norm if normalizes else trained):
        raise TypeError(
            f"layer {name!r} is a {type(module).__name__}, whose Lipschitz constant is not known: expected "
            f"nn.Sequential of Linear, Conv, ReLU, LeakyReLU, pools and flatten{', BatchNorm' if batch_norm else ''}, "
            "or a layer without parameters that has an attribute lipschitz"
        )
    constant: float | None = lipschitz(module, h)
    if constant is None:
        raise TypeError(f"layer {name!r} keeps no running statistics, so it is not an affine layer in evaluation")
    return constant
