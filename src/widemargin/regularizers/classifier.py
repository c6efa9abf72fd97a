"""The classifier of a network: the linear layer whose output is the scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from widemargin.modules import unwrap
from widemargin.places import At
from widemargin.types import is_binary


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
        self._unreached = [place for place in at or () if not _reached(at, place)]


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


def _reached(at: At | None, place: str) -> bool:
    assert at is not None
    try:
        at[place]
    except ValueError:
        return False
    return True


def _same(output: Tensor, scores: Tensor) -> bool:
    """Whether `scores` are `output`, possibly squeezed, or cast by a wrapper."""
    if output.numel() != scores.numel() or (is_binary(scores) and output.shape[-1] != 1):
        return False
    if output is scores or output.data_ptr() == scores.data_ptr():
        return True
    return torch.equal(output.detach().reshape(scores.shape).to(scores.dtype), scores.detach())
