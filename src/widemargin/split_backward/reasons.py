"""Why a loss or a network, as they are, rule the split backward out: in words, for one network and for a population."""

from __future__ import annotations

from torch import Tensor, nn

from widemargin.modules import mixing_modules
from widemargin.split_backward.protocol import SplitLoss
from widemargin.types import is_binary


def of_loss(loss: SplitLoss) -> str | None:
    """Because its gradient at the scores is no number times the direction of its slopes."""
    if loss.cross_entropy:
        return "the loss has a cross-entropy term, a second direction at the scores"
    if loss.second_order:
        return "the loss has second_order=True, its denominators depend on the weights"
    return None


def of_classes(loss: SplitLoss, scores: Tensor) -> str | None:
    """Because there are several such directions; probes choose one class."""
    others = 1 if is_binary(scores) or loss.probes is not None else scores.shape[1] - 1
    if (count := others if loss.classes == "all" else min(loss.classes, others)) > 1:
        return f"the loss takes {count} classes, each a direction at the scores"
    return None


def of_network(network: nn.Module) -> str | None:
    """Because samples are known to mix in it."""
    if mixing := mixing_modules(network):
        return f"{mixing[0]!r} ({type(network.get_submodule(mixing[0])).__name__}) mixes the samples of a batch"
    return None
