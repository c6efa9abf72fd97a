"""CUDA graphs of `fit`: when its passes can be captured, and the scores of the latest forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from widemargin._cuda import graphs
from widemargin.modules import scores_of
from widemargin.training.batches import InMemory, Place, Source
from widemargin.training.config import Task
from widemargin.training.fingerprint import describe


def why_no_graph(task: Task, source: Source, place: Place) -> str | None:
    """The reason why the passes of `fit` can't be captured, or None."""
    if not task.graph:
        return "graph is False"
    if place.processes > 1:
        return "there are several processes"
    if not isinstance(source, InMemory):
        return "the samples are not tensors, whose shapes and labels would be known"
    for part in (task.loss, *task.regularizers):
        if not type(part).__module__.startswith(("widemargin.losses", "widemargin.regularizers")):
            return f"{describe(part)} is not of this package, and may wait for the device"
    if getattr(task.loss, "needs_index", False):
        return "the loss needs the positions of the samples"
    return graphs.why_not(place.device)


@contextmanager
def last_scores(model: nn.Module) -> Iterator[list[Tensor]]:
    """The scores of the latest forward pass inside the `with` block, in a list."""
    found: list[Tensor] = []

    def keep(_: nn.Module, __: Any, answer: Any) -> None:
        found[:] = [scores_of(answer).detach()]

    handle = model.register_forward_hook(keep)
    try:
        yield found
    finally:
        handle.remove()
