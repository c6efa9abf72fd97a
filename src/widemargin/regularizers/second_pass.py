"""A forward pass beside the one of the data loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from widemargin._autograd.convolutions import CheapDoubleBackward
from widemargin.modules import unwrap


@contextmanager
def second_pass(model: nn.Module) -> Iterator[nn.Module]:
    """The network to run once more in a training step, so that the step leaves behind what the loss alone would have.

    BatchNorm in training mode still normalises with the statistics of the batch, but does not count the batch a second
    time in its running statistics. What `torch.compile(network)` gave is taken as it was before: a compiled network has
    no gradient of a gradient. Convolutions are those of `convolutions`.
    """
    network = unwrap(model)
    with CheapDoubleBackward(), uncounted(network):
        yield network


@contextmanager
def uncounted(network: nn.Module) -> Iterator[None]:
    """Leave the running statistics of BatchNorm layers unchanged inside the `with` block."""
    tracking = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    with ExitStack() as stack:
        for module in tracking:
            stack.callback(setattr, module, "track_running_stats", True)
            module.track_running_stats = False
        yield
