"""Adaptation of a loss to the training data: the number of samples, and whether they are augmented."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence, Sized
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widemargin._autograd.preserve_rng import preserve_rng, with_rng_lock
from widemargin.losses.protocol import Loss, for_augmented, for_samples
from widemargin.training.batches import seed_all

READ = 8
"""The most samples that are read twice."""

Collate = Callable[[list[Any]], object]


def for_data(loss: Loss, samples: int | None, augmented: Callable[[], bool]) -> Loss:
    """`loss` for this number of training samples, and for augmented ones if `augmented()`.

    Warns where the number is not known and the loss depends on it.
    """
    if samples is None and for_samples(loss, 1) is not loss:
        warnings.warn(
            f"the number of training samples is not known, and {loss!r} has its full weight, as for few samples: "
            "pass WideMargin(samples=...)",
            stacklevel=2,
        )
    known = for_samples(loss, samples)
    changed = for_augmented(known)
    return changed if changed is not known and augmented() else known


@with_rng_lock
def is_augmented(dataset: object, positions: Sequence[Any] | None = None, collate: Collate | None = None) -> bool:
    """Whether samples of `dataset` differ when they are read again, as images with random crops do.

    Some are read twice, and put into a batch twice by `collate`; the global generators are restored. False where
    samples can't be read by position. `positions` are those that training reads, all by default.
    """
    if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        return False
    known = range(len(dataset)) if positions is None else positions
    some = known[:: max(1, -(-len(known) // READ))]
    cpu, rows = torch.device("cpu"), []
    with preserve_rng(cpu):
        seed_all(cpu, "augmentation")  # so that a resumed training gets the same answer
        try:
            for i in some:
                rows.append(dataset[i])
                if _differ(rows[-1], dataset[i]):
                    return True
            return bool(rows) and collate is not None and _differ(collate(rows), collate(rows))
        except Exception:  # of the data set: training raises it where it reads this sample
            return False


def _differ(first: object, second: object) -> bool:
    """Whether two readings of a sample differ in an array, a number or a text."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() != second.keys() or any(_differ(value, second[key]) for key, value in first.items())
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) != len(second) or any(_differ(*pair) for pair in zip(first, second))
    if isinstance(first, str) and isinstance(second, str):
        return first != second
    if _is_array(first) and _is_array(second):
        return not _same(np.asarray(first), np.asarray(second))
    return False


def _is_array(value: object) -> bool:
    """Whether `value` is a number, a tensor, an array or an image of Pillow."""
    return isinstance(value, Number | Tensor | np.ndarray) or hasattr(value, "__array_interface__")


def _same(first: Any, second: Any) -> bool:
    """Whether shapes and entries are equal; two entries that are not numbers are."""
    return first.shape == second.shape and bool(((first == second) | ((first != first) & (second != second))).all())
