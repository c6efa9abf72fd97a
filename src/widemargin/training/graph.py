"""A training step as a CUDA graph: recorded once, and then replayed without Python, operation by operation.

    step = Static(lambda x, y: whole_step(x, y))       # zero_grad, passes, optimizer.step: all of it on the device
    for x, y in batches:
        step(x, y)

Small networks wait for launches, not for arithmetic; a graph is one launch. `fit` does not use it yet.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from widemargin.training.population.graph import WARM, capture, memory, why_not

Answer = Tensor | tuple[Tensor, ...] | None


class Static:
    """`step(x, y)` for batches of one shape: so many calls, so many steps, whether replayed or not.

    The first few calls run as they are, and so does every batch of another shape than the first one's; then the step is
    recorded, and from there on replayed. What it answers, tensors or nothing, is where the graph writes it: read or
    copy it before the next call. Nothing in the step may wait for the device (no `.item()`); a learning rate that
    changes must be a tensor; torch's Adam needs `capturable=True`; gradients must be set to None inside the step, not
    between steps. While a graph is recorded and replayed labels and scores are not looked at: check them before.
    """

    def __init__(self, step: Callable[[Tensor, Tensor], Answer]) -> None:
        self._step = step
        self._calls = 0
        self._batch: tuple[Tensor, Tensor] | None = None
        self._replay: Callable[[], None] | None = None
        self._answer: Answer = None

    def __call__(self, x: Tensor, y: Tensor) -> Answer:
        """One step on this batch."""
        if why_not(x.device) is not None:
            return self._step(x, y)
        if self._batch is None:
            self._batch = x.clone(), y.clone()
        if not all(_is_like(mine, given) for mine, given in zip(self._batch, (x, y))):
            return self._step(x, y)
        for mine, given in zip(self._batch, (x, y)):
            mine.copy_(given)
        if self._calls < WARM:
            self._calls += 1
            return self._warm()
        if self._replay is None:
            self._replay = capture(self._record, memory(x.device))
        self._replay()
        return self._answer

    @property
    def is_recorded(self) -> bool:
        """Whether there is a graph by now."""
        return self._replay is not None

    def _record(self) -> None:
        assert self._batch is not None
        self._answer = self._step(*self._batch)

    def _warm(self) -> Answer:
        """On a stream of its own, as torch asks of what comes before a recording."""
        assert self._batch is not None
        if not self._batch[0].is_cuda:
            return self._step(*self._batch)
        side = torch.cuda.Stream(self._batch[0].device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            answer = self._step(*self._batch)
        torch.cuda.current_stream().wait_stream(side)
        return answer


def _is_like(mine: Tensor, given: Tensor) -> bool:
    return mine.shape == given.shape and mine.dtype == given.dtype and mine.device == given.device
