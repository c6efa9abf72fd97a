"""A look at scores and labels that a GPU is not waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from widemargin._cuda.runtime import is_capturing
from widemargin.checks import check_finite, check_scores_and_labels, without_value_checks
from widemargin.types import is_binary


@contextmanager
def looked_at(scores: Tensor, labels: Tensor) -> Iterator[Looked]:
    """Inside the `with` block, values of scores and labels are not looked at: `Looked.answer` says what was found."""
    found = Looked(scores, labels)
    with without_value_checks():
        yield found


class Looked:
    """A look at scores and labels whose answer a GPU has not computed yet: asked for now, waited for later.

    To wait at once would leave the GPU with nothing to do. `labels` are those given, none of them out of range, so that
    nothing breaks before the answer is there. Where it can be had at once, on a CPU, or not at all, while a CUDA graph
    is recorded, nothing is different.
    """

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self._scores, self._given = scores.detach(), labels
        self.labels = labels
        self._wrong: Tensor | None = None
        self._event: torch.cuda.Event | None = None
        with without_value_checks():
            check_scores_and_labels(scores, labels)
        if is_capturing(labels.device):
            return
        if not is_slow(labels) or is_binary(scores) or labels.is_floating_point() or labels.dtype == torch.bool:
            self._raise()
            return
        self.labels = labels.clamp(0, scores.shape[1] - 1)
        # Of a sum of numbers, one that is not finite makes it so; and one that overflows is looked at more closely.
        wrong = (self.labels != labels).any() | ~torch.isfinite(self._scores.sum(dtype=torch.float32))
        self._wrong = torch.empty((), dtype=torch.bool, pin_memory=labels.is_cuda)
        self._wrong.copy_(wrong, non_blocking=True)
        if labels.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def answer(self) -> None:
        """Raise what `check_scores_and_labels` and `check_finite` would have, once that is known."""
        if self._wrong is None:
            return
        if self._event is not None:
            self._event.synchronize()
        if bool(self._wrong):
            self._raise()

    def _raise(self) -> None:
        with without_value_checks(False):
            check_scores_and_labels(self._scores, self._given)
            check_finite(self._scores, "scores")


def is_slow(labels: Tensor) -> bool:
    """Whether an answer about `labels` would have to be waited for."""
    return labels.is_cuda
