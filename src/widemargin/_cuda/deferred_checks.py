"""Validation of scores and labels without a GPU sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from widemargin.checks import check_scores_and_labels, is_capturing, without_value_checks
from widemargin.types import is_binary


@contextmanager
def deferred_checks(scores: Tensor, labels: Tensor) -> Iterator[DeferredChecks]:
    """Skip value checks of scores and labels inside the `with` block; `DeferredChecks.wait` raises their errors."""
    checks = DeferredChecks(scores, labels)
    with without_value_checks():
        yield checks


class DeferredChecks:
    """Checks of scores and labels that are launched now and read later, so that the GPU is not idle meanwhile.

    `labels` are the given ones clamped to the valid range, so that no kernel fails before `wait`. On a CPU the checks
    raise at once. During the capture of a CUDA graph there are no values to check.
    """

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self._scores, self._given = scores.detach(), labels
        self.labels = labels
        self._failed: Tensor | None = None
        self._event: torch.cuda.Event | None = None
        with without_value_checks():
            check_scores_and_labels(scores, labels)
        if is_capturing(labels.device):
            return
        if not needs_sync(labels) or is_binary(scores) or labels.is_floating_point() or labels.dtype == torch.bool:
            self._raise()
            return
        self.labels = labels.clamp(0, scores.shape[1] - 1)
        # A sum with a term that is not finite is not finite; `_raise` sorts out sums that merely overflow.
        failed = (self.labels != labels).any() | ~torch.isfinite(self._scores.sum(dtype=torch.float32))
        self._failed = torch.empty((), dtype=torch.bool, pin_memory=labels.is_cuda)
        self._failed.copy_(failed, non_blocking=True)
        if labels.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> None:
        """Raise the error of `check_scores_and_labels`, if any."""
        if self._failed is None:
            return
        if self._event is not None:
            self._event.synchronize()
        if bool(self._failed):
            self._raise()

    def _raise(self) -> None:
        with without_value_checks(False):
            check_scores_and_labels(self._scores, self._given, finite=True)


def needs_sync(labels: Tensor) -> bool:
    """Whether reading a value that depends on `labels` waits for a GPU."""
    return labels.is_cuda
