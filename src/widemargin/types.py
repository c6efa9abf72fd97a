"""The shapes that the whole package speaks of, and the checks of the two arguments that every margin takes.

`batch` is the number of samples, `classes` the number of scores of a sample. A binary network gives one score per
sample (`[batch]` or `[batch, 1]`) and takes float labels −1 and +1; a k-way network gives `[batch, k]` and takes class
indices. The shapes below are executed in the tests (jaxtyping + beartype) and cost nothing outside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from widemargin._cuda.runtime import is_recording

Scores: TypeAlias = Float[Tensor, "batch classes"] | Float[Tensor, " batch"]
"""What a classifier answers: one score per class, or one score for a binary network."""

Labels: TypeAlias = Shaped[Tensor, " batch"]
"""Class indices (any integer dtype), or −1.0 and +1.0 for a binary network."""

PerExample: TypeAlias = Float[Tensor, " batch"]
"""One number per sample."""

PerClass: TypeAlias = Float[Tensor, "batch others"]
"""One number per sample and other class."""

Mask: TypeAlias = Bool[Tensor, " batch"]
"""One yes or no per sample."""


HALF = (torch.float16, torch.bfloat16)


def wide(tensor: Tensor) -> Tensor:
    """In float32 what is in half precision; anything else as it is."""
    return tensor.float() if tensor.dtype in HALF else tensor


def is_binary(scores: Tensor) -> bool:
    """Whether these are the scores of a binary network: one score per sample."""
    return scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1)


def check_scores_and_labels(scores: Tensor, labels: Tensor) -> None:
    """Raise a `ValueError` or `TypeError` in one sentence unless `scores` and `labels` fit each other.

    The values of `scores` are not looked at here (`check_finite` does that): it would wait for the device.
    """
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores is a {type(scores).__name__}, expected a tensor [batch, classes] or [batch]")
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels is a {type(labels).__name__}, expected a tensor [batch]")
    if not scores.is_floating_point():
        raise TypeError(f"scores has dtype {scores.dtype}, expected a floating-point tensor")
    if scores.ndim not in (1, 2):
        raise ValueError(f"scores has shape {list(scores.shape)}, expected [batch, classes], or [batch] when binary")
    if labels.ndim != 1:
        raise ValueError(f"labels has shape {list(labels.shape)}, expected [batch]")
    if scores.shape[0] == 0:
        raise ValueError("scores is an empty batch, expected at least one sample")
    if scores.ndim == 2 and scores.shape[1] == 0:
        raise ValueError("scores has no classes, expected at least one score per sample")
    if len(labels) != len(scores):
        raise ValueError(f"labels has {len(labels)} entries, but scores has {len(scores)} samples")
    if labels.device != scores.device:
        raise ValueError(f"labels is on {labels.device}, but scores is on {scores.device}")
    if _is_unlooked(labels):
        return
    if is_binary(scores):
        _check_signs(labels)
    else:
        _check_indices(labels, scores.shape[1])


def check_finite(tensor: Tensor, name: str) -> None:
    """Raise a `ValueError` that names the first sample of `tensor` with a NaN or an infinity."""
    if _is_unlooked(tensor):
        return
    bad = ~torch.isfinite(tensor.detach()).flatten(1 if tensor.ndim > 1 else 0)
    rows = bad.any(dim=1) if bad.ndim > 1 else bad
    if bool(rows.any()):
        index = int(rows.nonzero()[0])
        value = tensor.detach()[index].flatten()
        raise ValueError(
            f"{name} has {value[~torch.isfinite(value)][0].item()} at index {index}, expected finite numbers"
        )


_SKIPS: ContextVar[bool] = ContextVar("skips", default=False)


@contextmanager
def unlooked(is_so: bool = True) -> Iterator[None]:
    """Inside the `with` block the checks look at shapes and kinds alone and not at numbers; or, again, at those too."""
    before = _SKIPS.set(is_so)
    try:
        yield
    finally:
        _SKIPS.reset(before)


def _is_unlooked(tensor: Tensor) -> bool:
    """Whether nobody is to look at values: someone else does, or a CUDA graph is being recorded and there are none."""
    return _SKIPS.get() or is_recording(tensor.device)


def _check_signs(labels: Tensor) -> None:
    if not labels.is_floating_point():
        raise TypeError(
            f"labels has dtype {labels.dtype}, but a network with one score per sample takes float labels -1.0 and 1.0"
        )
    bad = (labels.abs() != 1).nonzero()
    if len(bad):
        index = int(bad[0])
        raise ValueError(
            f"labels has {labels[index].item():g} at index {index}, expected -1 or 1 (one score per sample)"
        )


def _check_indices(labels: Tensor, classes: int) -> None:
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels has dtype {labels.dtype}, but scores have {classes} classes: expected class indices")
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        index = int(bad[0])
        raise ValueError(
            f"labels has {int(labels[index])} at index {index}, but scores have {classes} classes (0..{classes - 1})"
        )
