"""Passes of a training as a CUDA graph: recorded once, and then replayed without Python, operation by operation.

    passes = Static(lambda x, y: whole_pass(x, y), model.parameters())      # sets the gradients to None, and takes them
    for x, y in batches:
        passes(x, y)
        optimizer.step()

Small networks wait for launches, not for arithmetic; a graph is one launch. What Python does is done once, when the
graph is recorded: a network that draws from Python's generator, numpy's or torch's of the CPU, a random depth say,
would draw the same for ever. So a network that is seen to draw there is not recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from widemargin._cuda import graphs, runtime
from widemargin.modules import scores_of
from widemargin.training.batches import InMemory, Place, Source
from widemargin.training.config import Task
from widemargin.training.fingerprint import describe

Answer: TypeAlias = Tensor | tuple[Tensor, ...] | None


class Static:
    """`passes(x, y)` for batches of one shape: the same gradients and answers, whether replayed or not.

    The first few calls run as they are, and so does every batch of another shape than the first one's; then the passes
    are recorded, and from there on replayed. What they answer, tensors or nothing, is where the graph writes it: read
    or copy it before the next call. Nothing in them may wait for the device (no `.item()`). While a graph is recorded
    and replayed labels and scores are not looked at: whoever calls does so, once with `look` before the recording.

    `why_not` says why nothing is recorded, or None.
    """

    def __init__(
        self,
        passes: Callable[[Tensor, Tensor], Answer],
        parameters: Iterable[nn.Parameter] = (),
        *,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self.why_not: str | None = None
        self._passes, self._parameters, self._look = passes, tuple(parameters), look
        self._gradients: tuple[Tensor | None, ...] = ()
        self._calls = 0
        self._batch: tuple[Tensor, Tensor] | None = None
        self._replay: Callable[[], None] | None = None
        self._answer: Answer = None

    def __call__(self, x: Tensor, y: Tensor) -> Answer:
        """The passes on this batch."""
        if self._batch is None:
            self.why_not = graphs.why_not(x.device)
            self._batch = (x, y) if self.why_not else (x.clone(), y.clone())
        if self.why_not or not all(_is_like(mine, given) for mine, given in zip(self._batch, (x, y))):
            return self._passes(x, y)
        for mine, given in zip(self._batch, (x, y)):
            mine.copy_(given)
        if self._calls < graphs.WARM:
            self._calls += 1
            return self._warm()
        if self._replay is None and not self._record():
            return self._passes(x, y)
        assert self._replay is not None
        self._replay()
        for parameter, gradient in zip(self._parameters, self._gradients):  # a batch of another shape has set others
            parameter.grad = gradient
        return self._answer

    @property
    def is_recorded(self) -> bool:
        """Whether there is a graph by now."""
        return self._replay is not None

    def _record(self) -> bool:
        assert self._batch is not None
        batch = self._batch

        def once() -> None:
            self._answer = self._passes(*batch)
            self._gradients = tuple(parameter.grad for parameter in self._parameters)

        self._look()
        try:
            self._replay = graphs.capture(once, graphs.memory(batch[0].device))
        except RuntimeError as error:  # something waits for the device, or there is no memory for it
            self.why_not = f"it can't be recorded: {str(error).splitlines()[0]}"
        return self._replay is not None

    def _warm(self) -> Answer:
        """On a stream of its own, as torch asks of what comes before a recording."""
        assert self._batch is not None
        before = _drawn()
        if not self._batch[0].is_cuda:
            answer = self._passes(*self._batch)
        else:
            with runtime.on_the_side(self._batch[0].device):
                answer = self._passes(*self._batch)
        if not _same(before, _drawn()):
            self.why_not = "it draws random numbers on the CPU, which a graph would repeat"
        return answer


def why_no_graph(task: Task, source: Source, place: Place) -> str | None:
    """Why the passes of `fit` can't be recorded, or None where it is worth a try."""
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


def _is_like(mine: Tensor, given: Tensor) -> bool:
    return mine.shape == given.shape and mine.dtype == given.dtype and mine.device == given.device


def _drawn() -> tuple[Any, ...]:
    """The states of the generators of the CPU."""
    numbers = np.random.get_state(legacy=False)  # noqa: NPY002
    return _of_python(), repr(numbers), torch.default_generator.get_state()


def _of_python() -> Any:
    return random.getstate()


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[:-1] == other[:-1] and torch.equal(one[-1], other[-1])
