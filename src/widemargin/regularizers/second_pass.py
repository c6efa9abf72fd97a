"""The forward pass of a regularizer, beside the one of the data loss, and the gradients of its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from widemargin._autograd.convolutions import CheapDoubleBackward
from widemargin.checks import check_choice, check_finite, check_number, check_scores_and_labels
from widemargin.places import At
from widemargin.types import Labels, Scores


def check_settings(weight: float, at: str, statistics: str) -> None:
    """Raise unless the settings that the regularizers of Jacobians share are valid."""
    check_number("weight", weight, least=0.0)
    if not isinstance(at, str):
        raise TypeError(f"at is {at!r}, expected the name of one place such as 'input'")
    check_choice("statistics", statistics, ("coupled", "frozen"))


@contextmanager
def second_pass(model: nn.Module) -> Iterator[nn.Module]:
    """The network for another forward pass in a training step, which leaves running statistics unchanged.

    BatchNorm in training mode normalises with the statistics of the batch, but does not count it a second time. A
    compiled network runs uncompiled, since it has no gradient of a gradient. Convolutions are those of `convolutions`.
    """
    network = getattr(model, "_orig_mod", model)  # DDP and Fabric wrappers stay: they cast and count passes
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


def check_pass(scores: Scores, y: Labels, at: At, place: str) -> None:
    """Raise unless scores and labels are valid, and the pass was watched at `place`."""
    check_scores_and_labels(scores, y)
    check_finite(scores, "scores")
    if tuple(at) != (place,):
        raise ValueError(f"at watches {tuple(at)}, but the regularizer has at={place!r}")


def gradients_at(at: At, outputs: Tensor) -> Iterator[Tensor]:
    """The gradients of the columns of `outputs` at the one place of `at`, `[some, batch, ...]`, with their graph."""
    batch = len(outputs)
    for part in at.columns(outputs, second_order=True):
        ((name, gradients),) = part.items()
        if gradients.shape[1:2] != (batch,):
            raise ValueError(
                f"at has {name!r} with {gradients[0].shape[0] if gradients.ndim > 1 else 'no'} rows, but scores have "
                f"{batch} samples: a place must have the batch as its first dimension"
            )
        yield gradients
