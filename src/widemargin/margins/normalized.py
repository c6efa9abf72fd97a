"""Margins divided by the size of the weights (farhang, Definitions 3.1 and 3.2).

Both are defined for networks that are homogeneous in their weights: linear and convolutional layers without bias,
ReLUs and pools between them. A layer with a norm of its own that these definitions do not know is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from widemargin import layers, norms
from widemargin.checks import check_batch, check_choice, check_labels, check_module, check_weights
from widemargin.layers.trace import Trace
from widemargin.margins.output import output
from widemargin.modules import cast_input, unwrap
from widemargin.types import Labels, PerExample

Biases = Literal["refuse", "ignore"]
Inputs = Literal["each", "joint"]


def frobenius(model: nn.Module, x: Tensor, y: Labels, *, biases: Biases = "refuse") -> PerExample:
    """γ̄_F = γ · Π_l √d_l/‖W_l‖_F · √d_0/‖x‖_2 (farhang, Definition 3.1).

    d_l is the number of rows of W_l; for a convolution, ‖·‖_F is the kernel's and d_l its output channels (errata 11).

    Args:
        model: a bias-free network of linear and convolutional layers.
        x: inputs; d_0 is the number of entries of one.
        y: class indices, or ±1 for a network with one output.
        biases: a bias is not in the definition: refuse such a network, or leave its biases out of the norm.
    """
    x = _checked(model, x)
    check_labels(y, len(x))
    factor = 1.0
    for name, weight in weights(model, biases=biases):
        factor *= math.sqrt(len(weight)) / _positive(float(norms.frobenius(weight)), name)
    by_input = _input_factor(x, "each")
    scores, _ = _run(model, x, biases)
    return output(scores, y) * factor * by_input


def spectral(
    model: nn.Module,
    x: Tensor,
    y: Labels,
    *,
    reference: nn.Module | None = None,
    inputs: Inputs = "each",
    biases: Biases = "refuse",
) -> PerExample:
    """γ̄_σ = γ / R_w · √d_0/‖x‖_2, with the spectral complexity R_w (farhang, Definition 3.2).

    Args:
        model: a bias-free network of linear and convolutional layers.
        x: inputs.
        y: class indices, or ±1 for a network with one output.
        reference: the network M chosen before the data was seen, usually the initial one; None is zero.
        inputs: divide by each input's own norm, or (`"joint"`) by ‖X‖_F/n, as Bartlett et al. and Figure 2 do.
        biases: as in `frobenius`.
    """
    check_choice("inputs", inputs, ("each", "joint"))
    x = _checked(model, x)
    check_labels(y, len(x))
    complexity = spectral_complexity(model, x, reference=reference, biases=biases)
    factor = _input_factor(x, inputs)
    scores, _ = _run(model, x, biases)
    return output(scores, y) * factor / complexity


def spectral_complexity(
    model: nn.Module, x: Tensor, *, reference: nn.Module | None = None, biases: Biases = "refuse"
) -> float:
    """R_w = Π_l ‖W_l‖_σ · (Σ_l ‖W_lᵀ − M_lᵀ‖_{2,1}^{2/3} / ‖W_l‖_σ^{2/3})^{3/2} (farhang Def. 3.2; Bartlett eq. 1.2).

    ‖·‖_σ of a convolution is that of the operator it is, on feature maps of the size it meets on `x`.
    """
    if reference is not None:
        check_module(reference, "reference")
    sizes = operator_norms(model, x, biases=biases)
    centres = {} if reference is None else dict(weights(reference, biases="ignore"))
    total = 0.0
    for name, weight in weights(model, biases=biases):
        centre = centres.get(name)
        if reference is not None and (centre is None or centre.shape != weight.shape):
            raise ValueError(f"reference has no weight of shape {list(weight.shape)} at {name!r}, as the network has")
        moved = weight if centre is None else weight - centre.to(weight)
        total += (float(norms.two_one(moved)) / sizes[name]) ** (2 / 3)
    return math.prod(sizes.values()) * total**1.5


def operator_norms(model: nn.Module, x: Tensor, *, biases: Biases = "refuse") -> dict[str, float]:
    """‖W_l‖_σ of every weight layer, by name: of its linear operator on feature maps of the size that `x` gives."""
    x = _checked(model, x)
    network = unwrap(model)
    _, shapes = _run(model, x[:1], biases)
    found = {}
    for name, shape in shapes.items():
        layer = network.get_submodule(name)
        rule = layers.rule("operator_norm", layer)
        assert rule is not None
        found[name] = _positive(float(rule(layer, shape)), name)
    return found


def weights(model: nn.Module, *, biases: Biases = "refuse") -> Iterator[tuple[str, Tensor]]:
    """Name and weight of every layer of `model`; raises for the first layer whose norm is not known."""
    check_choice("biases", biases, ("refuse", "ignore"))
    check_module(model)
    found = False
    for name, module in unwrap(model).named_modules():
        own = list(module.parameters(recurse=False)) + list(module.buffers(recurse=False))
        if not own and layers.rule("normalizes", module) is None:
            continue
        if layers.rule("operator_norm", module) is None:
            raise TypeError(
                f"layer {name!r} is a {type(module).__name__}, which has no norm in normalized margins: "
                "expected Linear and Conv layers and layers without parameters"
            )
        if module.bias is not None and biases == "refuse":
            raise ValueError(
                f"layer {name!r} has a bias, which normalized margins do not count: "
                "build the network without biases, or pass biases='ignore'"
            )
        found = True
        yield name, module.weight.detach()
    if not found:
        raise ValueError(f"{type(unwrap(model)).__name__} has no layer with weights, expected Linear or Conv layers")


def _checked(model: nn.Module, x: Tensor) -> Tensor:
    """The inputs on the device and in the dtype of the weights."""
    check_module(model)
    list(weights(model, biases="ignore"))  # an embedding is named, and not the dtype of its tokens
    check_batch(x, "x")
    check_weights(model)
    found = cast_input(model, x)
    assert isinstance(found, Tensor)
    return found


def _run(model: nn.Module, x: Tensor, biases: Biases) -> tuple[Tensor, dict[str, torch.Size]]:
    """The scores, and the shape of what reaches every weight layer, which must run exactly once to count once."""
    network = unwrap(model)
    names = [name for name, _ in weights(model, biases=biases)]
    trace = Trace(network, x, "operator_norm")
    shapes = {}
    for name in names:
        layer = network.get_submodule(name)
        met = [call.x.shape[1:] for call in trace.calls if call.module is layer]
        if len(met) > 1:
            raise ValueError(f"layer {name!r} ran more than once, but normalized margins count every layer once")
        if not met:
            raise ValueError(f"layer {name!r} was not reached by the forward pass, so its norm is not defined")
        shapes[name] = met[0]
    return trace.scores, shapes


def _positive(size: float, name: str) -> float:
    if not size > 0:
        raise ValueError(f"layer {name!r} has a weight of norm {size}, for which no normalized margin is defined")
    return size


def _input_factor(x: Tensor, inputs: Inputs) -> Tensor:
    size = norms.lp(x, 2.0)
    zero = (size == 0).nonzero()
    if len(zero) == len(x) or (len(zero) and inputs == "each"):
        raise ValueError(f"x has an all-zero input at index {int(zero[0])}, whose normalized margin is not defined")
    if inputs == "joint":
        return len(x) / torch.linalg.vector_norm(size)
    return math.sqrt(x[0].numel()) / size
