"""Neyshabur's bound by Frobenius norms (sokolic, eq. 21)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from torch import Tensor, nn

from widemargin import norms
from widemargin.bounds.chain import chain_of
from widemargin.bounds.result import Assumption, Bound, power
from widemargin.margins.normalized import Biases


class FrobeniusLayer(NamedTuple):
    """‖W_i‖_F of one layer."""

    name: str
    size: Annotated[float, "‖W‖_F"]


@dataclass(frozen=True, kw_only=True)
class NeyshaburBound(Bound):
    """`value` = 2^L ‖v‖_2 Π‖W_i‖_F/√m, with every term of it."""

    source: ClassVar[str] = "Neyshabur's Frobenius bound of the generalization error (sokolic, eq. 21), with constant 1"
    depth: int
    depth_factor: Annotated[float, "2^L"]
    classifier: Annotated[float, "‖v‖_2"]
    layers: tuple[FrobeniusLayer, ...]
    lipschitz_factor: Annotated[float, "Π Lipschitz"]
    samples: Annotated[int, "m"]
    largest_input: Annotated[float, "max ‖x‖_2"]


def neyshabur(model: nn.Module, x: Tensor, *, biases: Biases = "refuse") -> NeyshaburBound:
    """GE ≲ 2^L ‖v‖_2 Π_{i=1}^L ‖W_i‖_F/√m (sokolic, eq. 21, after Neyshabur et al. 2015).

    The W_i are the L layers below the last one, whose matrix is the classifier v. The paper has two classes and one
    vector v; with k classes, ‖v‖_2 is the Frobenius norm of the matrix of all class vectors. Activations and pools
    carry their Lipschitz constants (farhang, errata 11). The constant is taken as 1.

    Assumes that the energy of the training samples is bounded: the largest ‖x‖_2 is reported, and is above 1 in most
    data, where the value is too small by that factor.

    Args:
        model: a chain of layers without biases, see `chain.chain_of`.
        x: the training inputs.
        biases: refuse a network with biases, or leave them out of the norms.
    """
    chain = chain_of(model, x, biases=biases)
    *hidden, last = chain.weights
    sizes = tuple(FrobeniusLayer(link.name, link.frobenius) for link in hidden)
    product = math.prod((size for _, size in sizes), start=1.0) * chain.factor
    largest = float(norms.lp(x.double(), 2.0).max())
    return NeyshaburBound(
        value=power(2.0, len(hidden)) * last.frobenius * product / math.sqrt(len(x)),
        depth=len(hidden),
        depth_factor=power(2.0, len(hidden)),
        classifier=last.frobenius,
        layers=sizes,
        lipschitz_factor=chain.factor,
        samples=len(x),
        largest_input=largest,
        assumptions=(
            chain.no_biases,
            Assumption(text="inputs lie in the unit ball", holds=largest <= 1, found=f"max ‖x‖_2 is {largest:.4g}"),
        ),
    )
