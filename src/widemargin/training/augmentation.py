"""Adaptation of a loss to the training data: the number of samples, and whether they are augmented."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widemargin._autograd.preserve_rng import preserve_rng, takes_turns
from widemargin.losses.protocol import Loss, for_augmented, for_samples
from widemargin.training.batches import seed_all

READ = 8
"""The most samples that are read twice."""


def for_data(loss: Loss, samples: int | None, dataset: object) -> Loss:
    """`loss` for this number of training samples, and for augmented ones if `dataset` changes them at random."""
    known = for_samples(loss, samples)
    augmented = for_augmented(known)
    return augmented if augmented is not known and is_augmented(dataset) else known


@takes_turns
def is_augmented(dataset: object) -> bool:
    """Whether samples of `dataset` differ when they are read again, as images with random crops do.

    Some are read twice; the global generators are restored. False where samples can't be read by position.
    """
    if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        return False
    cpu, count = torch.device("cpu"), len(dataset)
    with preserve_rng(cpu):
        seed_all(cpu, "augmentation")  # a resumed training finds the same
        return any(_differ(dataset[i], dataset[i]) for i in range(0, count, max(1, -(-count // READ))))


def _differ(first: object, second: object) -> bool:
    """Whether two readings of a sample differ in a tensor, an array or a number."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return any(_differ(value, second.get(key)) for key, value in first.items())
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return any(_differ(*pair) for pair in zip(first, second))
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape != second.shape or not _same(first, second)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.shape != second.shape or not _same(first, second)
    if isinstance(first, Number) and isinstance(second, Number):
        return not _same(np.asarray(first), np.asarray(second))
    return False


def _same(first: Any, second: Any) -> bool:
    """Whether all entries are equal, or both not a number."""
    return bool(((first == second) | ((first != first) & (second != second))).all())
