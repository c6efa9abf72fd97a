"""Networks as chains of linear operators with activations and pools between them.

A product of norms bounds a network only if its layers follow each other, and each has a known constant. A convolution
is the linear operator on the images that reach it, not its kernel.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from widemargin import layers
from widemargin.bounds.result import Assumption
from widemargin.checks import check_batch, check_choice
from widemargin.layers.forms import Affine, Form, Slopes
from widemargin.layers.trace import Call
from widemargin.margins.normalized import Biases
from widemargin.modules import evaluating, unwrap

_RELU = Slopes(negative=0.0, positive=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Link:
    """A layer of a chain, on inputs of `shape` (without the batch).

    `lipschitz` is an upper bound of its l_2 Lipschitz constant, for a layer with weights of the operator norm ‖W‖_2.
    `form` is its affine or piecewise affine form, if it has one.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    lipschitz: float
    form: Form | None

    @property
    def is_weight(self) -> bool:
        """Whether the layer is a linear operator with a weight."""
        return isinstance(self.form, Affine) and self.form.is_weight

    @property
    def is_plain(self) -> bool:
        """Whether the layer is a ReLU, or only moves entries."""
        return self.form.moves if isinstance(self.form, Affine) else self.form == _RELU

    @property
    def weight(self) -> Tensor:
        """The matrix or kernel, in float64."""
        with evaluating(self.module):
            weight = self.module.weight
        assert isinstance(weight, Tensor)
        return weight.detach().double()

    @property
    def units(self) -> int:
        """The number of output units of a layer with a weight: rows of its operator."""
        return self.rows(self.weight).numel()

    @property
    def frobenius(self) -> float:
        """‖W‖_F of the operator; for a convolution larger than its kernel's, since every position has a row."""
        return float(torch.linalg.vector_norm(self.rows(self.weight)))

    @property
    def norm(self) -> float:
        """‖W‖_2 of a layer with weights, not an upper bound: that of a large convolution is an estimate."""
        norm = layers.rule("operator_norm", self.module)
        assert norm is not None
        return float(norm(copy.deepcopy(self.module).double().eval(), self.shape))

    def rows(self, weight: Tensor) -> Tensor:
        """The l_2 norm of every row of the linear operator with `weight` in place of the layer's own."""
        assert isinstance(self.form, Affine)
        assert self.form.row_norms is not None
        return self.form.row_norms(2.0, weight)


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
        model: a chain (see `layers.read_chain`) of Linear, Conv, ReLU, LeakyReLU, pools, changes of shape, or layers
            without parameters that state their l_2 Lipschitz constant in an attribute `lipschitz`.
        x: inputs; one of them is run.
        biases: refuse a network with biases, or leave them out of the norms.
        batch_norm: accept BatchNorm in evaluation mode, an affine layer, as a link too.
    """
    check_choice("biases", biases, ("refuse", "ignore"))
    check_batch(x, "x")
    calls, _ = layers.read_chain(model, x, "operator_norm", "lipschitz")
    with evaluating(unwrap(model)):  # a spectral norm in training mode changes whenever its weight is read
        chain = LayerChain(links=tuple(_link(call, batch_norm) for call in calls))
    if not chain.weights or not chain.links[-1].is_weight:
        last = f"ends in a {type(chain.links[-1].module).__name__}" if chain.links else "has no layers"
        raise ValueError(f"the network {last}, expected a chain that ends in a Linear or Conv layer")
    for link in chain.weights:
        if link.module.bias is not None and biases == "refuse":
            cure = "build the network without biases, or pass biases='ignore'"
            raise ValueError(f"layer {link.name!r} has a bias, which this theorem does not count: {cure}")
    return chain


@torch.no_grad()
def _link(call: Call, batch_norm: bool) -> Link:
    form, module, shape = layers.form_of(call.module, call.x), call.module, tuple(call.x.shape[1:])
    operator_norm, lipschitz = layers.rule("operator_norm", module), layers.rule("lipschitz", module)
    if operator_norm is not None and isinstance(form, Affine):
        if form.row_norms is None:
            raise TypeError(f"layer {call.name!r} has padding_mode {module.padding_mode!r}, expected 'zeros'")
        constant = form.lipschitz
        if not constant > 0:
            raise ValueError(f"layer {call.name!r} has a weight of norm {constant}, for which no bound is defined")
    else:
        normalizes = layers.rule("normalizes", module) is not None
        trained = next(module.parameters(), None) is not None
        shifts = isinstance(form, Affine) and form.bias is not None and bool(form.bias.any())  # x + constant
        if lipschitz is None or (not batch_norm if normalizes or shifts else trained):
            known = f"Linear, Conv, ReLU, LeakyReLU, pools, flatten{', BatchNorm' if batch_norm else ''}"
            raise TypeError(
                f"layer {call.name!r} is a {type(module).__name__}, whose Lipschitz constant is not known: expected "
                f"{known}, or a layer without parameters that has an attribute lipschitz"
            )
        constant = lipschitz(module, call.x)
    return Link(name=call.name, module=module, shape=shape, lipschitz=constant, form=form)
