"""Layers that behave differently in a population: dropout, which every network draws for itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from widemargin.population import rng

_WHOLE_CHANNELS = {nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


class Dropout(nn.Module):
    """x·mask/(1 − p), with masks out of the stream of `key`, which one network's step and pass has for its own."""

    def __init__(self, layer: _DropoutNd, number: int) -> None:
        super().__init__()
        self.p, self.number, self.calls = layer.p, number, 0
        self.channels = _WHOLE_CHANNELS.get(type(layer))  # dimensions of what is dropped as a whole
        self.key: Tensor | None = None

    def start(self, key: Tensor | None) -> None:
        """Draw from the beginning of the stream of `key`; None: drop nothing."""
        self.key, self.calls = key, 0

    def forward(self, x: Tensor) -> Tensor:
        """A new mask in each call."""
        if self.key is None or not self.training:
            return x
        self.calls += 1
        shape = x.shape if self.channels is None else x.shape[: -self.channels]
        kept = rng.keep(self.key + self.number, self.calls, shape, self.p)
        kept = kept.view(*shape, *[1] * (x.ndim - len(shape)))
        return torch.where(kept, x / (1 - self.p), torch.zeros_like(x)) if self.p < 1 else torch.zeros_like(x)


def with_own_dropout(network: nn.Module) -> list[Dropout]:
    """Put `Dropout` in the place of every dropout layer of `network`, under its name, and return them."""
    found: list[Dropout] = []
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, _DropoutNd) and layer.p > 0:
                found.append(Dropout(layer, len(found)))
                setattr(module, name, found[-1])
    return found


def check_layers(network: nn.Module) -> None:
    """Raise a `TypeError` that names the first layer which a population can't train as it would train alone."""
    for name, module in network.named_modules():
        wrong = isinstance(module, nn.SyncBatchNorm) or (
            # The running mean over all batches divides by a counter, which vmap can't read.
            isinstance(module, _BatchNorm) and module.momentum is None and module.track_running_stats
        )
        wrong = wrong or (isinstance(module, _DropoutNd) and type(module) not in (nn.Dropout, *_WHOLE_CHANNELS))
        if wrong or isinstance(module, nn.RNNBase):
            raise TypeError(
                f"networks have a layer {name!r}, {module}, which a population does not know: train them with fit"
            )
