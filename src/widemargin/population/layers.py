"""Layers of a population: stacked forward passes, dropout masks per network, and layers that can't be stacked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from widemargin import layers
from widemargin.population import conv_matmul, linear, norm_layers, rng  # noqa: F401


@contextmanager
def stacked_layers(network: nn.Module, convolutions: conv_matmul.Convolutions = "grouped") -> Iterator[None]:
    """Inside the `with` block, and inside `vmap`, layers of `network` with a stacked form run as one operation."""
    with ExitStack() as stack:
        for layer in network.modules():
            rule = layers.rule("stacked", layer)
            forward = None if rule is None else rule(layer, convolutions)
            if forward is not None and not isinstance(forward, nn.Module):
                layer.forward = forward
                stack.callback(delattr, layer, "forward")
        yield


class Dropout(nn.Module):
    """x·mask/(1 − p), with masks from the random stream `key` of one network's step and pass.

    `dims` trailing dimensions are dropped as a whole. `number` tells the dropout layers of a network apart.
    """

    def __init__(self, p: float, dims: int) -> None:
        super().__init__()
        self.p, self.dims, self.number, self.calls = p, dims, 0, 0
        self.key: Tensor | None = None

    def start(self, key: Tensor | None) -> None:
        """Draw from the beginning of the stream of `key`; None: drop nothing."""
        self.key, self.calls = key, 0

    def forward(self, x: Tensor) -> Tensor:
        """A new mask in each call."""
        if self.key is None or not self.training:
            return x
        self.calls += 1
        shape = x.shape[: x.ndim - self.dims]
        kept = rng.keep(self.key + self.number, self.calls, shape, self.p)
        kept = kept.view(*shape, *[1] * (x.ndim - len(shape)))
        return torch.where(kept, x / (1 - self.p), torch.zeros_like(x)) if self.p < 1 else torch.zeros_like(x)


def _dropout(dims: int, layer: _DropoutNd, _: str) -> Dropout | None:
    return Dropout(layer.p, dims) if layer.p > 0 else None


for _dims, _kind in enumerate((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)):
    layers.register("stacked", _kind)(partial(_dropout, _dims))


@layers.register("unstackable", nn.RNNBase, nn.AlphaDropout, nn.FeatureAlphaDropout)
def unstackable(_: nn.Module) -> str:
    """Recurrent layers, and dropout without masks of this package."""
    return "vmap has no rule for it"


def with_own_dropout(network: nn.Module) -> list[Dropout]:
    """Replace every dropout layer of `network` by a `Dropout` of the same name, and return them."""
    found: list[Dropout] = []
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            rule = layers.rule("stacked", layer)
            own = None if rule is None else rule(layer, "grouped")
            if isinstance(own, Dropout):
                own.number = len(found)
                found.append(own)
                setattr(module, name, own)
    return found


def check_layers(network: nn.Module) -> None:
    """Raise a `TypeError` that names the first layer which a population can't train as it would train alone."""
    for name, module in network.named_modules():
        rule = layers.rule("unstackable", module)
        reason: str | None = None if rule is None else rule(module)
        if reason is not None:
            raise TypeError(
                f"networks have a layer {name!r}, {module}, which a population can't train ({reason}): use fit"
            )
