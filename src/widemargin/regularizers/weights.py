"""Penalties of the weights, and the classifier of a network: the linear layer whose output is the scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from widemargin.checks import check_module_name, check_names, check_number, check_type
from widemargin.modules import ModelInputs, evaluating, forward, unwrap
from widemargin.places import At
from widemargin.types import Labels, is_binary


@dataclass(frozen=True, kw_only=True)
class WeightDecay:
    """λ (‖v‖²_2 + Σ_i ‖W_i‖²_F): the squares of all weights, without biases (sokolic, eq. 23).

    As printed, without a factor ½: an optimizer's `weight_decay=d` is this with λ = d/2 (and takes biases too). The
    weights are the tensors of two or more dimensions, matrices and kernels, v among them; a shared one counts once, and
    a parametrized one (`torch.nn.utils.parametrize`) as the tensor that it gives.

    Args:
        weight: λ ≥ 0.
        layers: names of modules whose weights count, with all that is inside them; None: the whole network.
    """

    weight: float
    layers: tuple[str, ...] | None = None
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("weight", self.weight, least=0.0)
        if self.layers is not None:
            check_names("layers", self.layers)
            if not self.layers:
                raise TypeError("layers is empty, expected None or a tuple of module names such as ('fc1',)")
            object.__setattr__(self, "layers", tuple(self.layers))

    def __call__(
        self,
        model: nn.Module,
        x: ModelInputs | None = None,  # noqa: ARG002
        y: Labels | None = None,  # noqa: ARG002
    ) -> Float[Tensor, ""]:
        """The penalty; the data are not used."""
        network = unwrap(model)
        modules = [network] if self.layers is None else [module_of(network, name, "layers") for name in self.layers]
        by_parameter: dict[int, Tensor] = {}
        for module, name in zip(modules, self.layers or ("",)):
            weights = list(_weights(module))
            if not weights:
                owner = f"layers has {name!r}, which" if name else f"model is a {type(network).__name__}, which"
                raise ValueError(f"{owner} has no weight of two or more dimensions")
            by_parameter.update((id(parameter), weight) for parameter, weight in weights)
        return self.weight * torch.stack([weight.square().sum() for weight in by_parameter.values()]).sum()


@dataclass(frozen=True, kw_only=True)
class ClassifierPenalty:
    """λ ‖V‖²_F, with V the matrix of the last linear layer, a row a class (sokolic, appendix).

    "Since we use a multi-class classifier, the Frobenius norm of the matrix of classification vectors is constrained
    instead of the norm of v": the first term of (23), hence squared, without a factor ½ and without the bias.

    Args:
        weight: λ ≥ 0.
        layer: name of the last linear layer; None: the one whose output is the scores, found by running the first
            sample in evaluation mode.
    """

    weight: float
    layer: str | None = None
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("weight", self.weight, least=0.0)
        check_type("layer", self.layer, (str, type(None)), "the name of a module, or None")

    def __call__(
        self,
        model: nn.Module,
        x: ModelInputs | None = None,
        y: Labels | None = None,  # noqa: ARG002
    ) -> Float[Tensor, ""]:
        """The penalty; only the first sample of `x` is used, and only where `layer` is None."""
        return self.weight * self._matrix(model, x).square().sum()

    def _matrix(self, model: nn.Module, x: ModelInputs | None) -> Tensor:
        network = unwrap(model)
        if self.layer is not None:
            layer = module_of(network, self.layer, "layer")
            if not isinstance(layer, nn.Linear):
                raise TypeError(f"layer is {self.layer!r}, a {type(layer).__name__}, expected the name of an nn.Linear")
            return layer.weight
        if x is None:
            raise TypeError("x is None and layer is None, expected samples to find the last layer with, or its name")
        with evaluating(network), torch.no_grad(), watch_classifier(network) as seen:
            scores = forward(network, x[:1])
        seen.matrix(network, scores)  # raises where it is not the classifier
        assert seen.name is not None
        return network.get_submodule(seen.name).weight  # type: ignore[return-value]  # again, with its graph


def module_of(network: nn.Module, name: str, argument: str) -> nn.Module:
    """The module `name` of `network`; raises a `ValueError` that names `argument` if there is none."""
    known = {inner: module for inner, module in network.named_modules() if inner}
    check_module_name(argument, name, known, network)
    return known[name]


def _weights(module: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """(the parameter that identifies it, the weight) of every matrix and kernel in `module`."""
    hidden: set[int] = set()
    for inner in module.modules():
        if parametrize.is_parametrized(inner):
            assert isinstance(inner.parametrizations, nn.ModuleDict)
            for name, stored in inner.parametrizations.items():
                parameters = list(stored.parameters())
                hidden.update(map(id, parameters))
                weight = getattr(inner, name)
                if weight.ndim >= 2 and parameters:
                    yield parameters[0], weight
    for parameter in module.parameters():
        if parameter.ndim >= 2 and id(parameter) not in hidden:
            yield parameter, parameter


class LastLinear:
    """The `nn.Linear` that ran last in a forward pass: its name, its matrix V (a row a class) and its output."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._weight: Tensor | None = None
        self._output: Tensor | None = None
        self._unreached: list[str] = []

    def matrix(self, model: nn.Module, scores: Tensor) -> Tensor:
        """V. Raises a `ValueError` unless `scores` are the output of the layer and all watched places lie before it."""
        kind = type(unwrap(model)).__name__
        if self.name is None or self._weight is None or self._output is None:
            raise ValueError(
                f"model is a {kind} in which no nn.Linear ran, expected a network that ends in a linear layer"
            )
        if not _same(self._output, scores):
            raise ValueError(
                f"model is a {kind} whose scores are not the output of its last linear layer {self.name!r}, expected a "
                "network that ends in a linear layer (give the scores before a softmax)"
            )
        if self._unreached:
            raise ValueError(
                f"at has {self._unreached[0]!r}, which does not lie before the classifier {self.name!r}: there the "
                "Jacobian says nothing about the network, expected 'input' or an earlier place"
            )
        return self._weight

    def record(self, name: str, at: At | None, module: nn.Module, _: object, output: Tensor) -> None:
        """Forward hook of the linear layer `name`."""
        assert isinstance(module, nn.Linear)
        # The weight is read here: inside torch.func.functional_call the module has another one than afterwards.
        self.name, self._weight, self._output = name, module.weight, output
        self._unreached = [] if at is None else at.unreached()


@contextmanager
def watch_classifier(model: nn.Module, at: At | None = None) -> Iterator[LastLinear]:
    """Record the linear layer that runs last inside the `with` block; the places `at` must run before it."""
    seen = LastLinear()
    with ExitStack() as stack:
        for name, module in unwrap(model).named_modules():
            if isinstance(module, nn.Linear):
                # Before the hooks of `at`: a place at the classifier's own output is then not reached yet.
                handle = module.register_forward_hook(partial(seen.record, name, at), prepend=True)
                stack.callback(handle.remove)
        yield seen


def _same(output: Tensor, scores: Tensor) -> bool:
    """Whether `scores` are `output`, possibly squeezed, or cast by a wrapper."""
    if output.numel() != scores.numel() or (is_binary(scores) and output.shape[-1] != 1):
        return False
    if output is scores or output.data_ptr() == scores.data_ptr():
        return True
    return torch.equal(output.detach().reshape(scores.shape).to(scores.dtype), scores.detach())
