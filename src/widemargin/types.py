"""Types of the package: scores, labels, one number per example, and untyped interfaces of torch.

`batch` is the number of samples, `classes` the number of scores of a sample. A binary network gives one score per
sample (`[batch]` or `[batch, 1]`) and takes float labels −1 and +1; a k-way network gives `[batch, k]` and takes class
indices. The shapes below are executed in the tests (jaxtyping + beartype) and cost nothing outside them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

Scores: TypeAlias = Float[Tensor, "batch classes"] | Float[Tensor, " batch"]
"""Output of a classifier: one score per class, or one score per sample for a binary network."""

Labels: TypeAlias = Shaped[Tensor, " batch"]
"""Class indices (any integer dtype), or −1.0 and +1.0 for a binary network."""

PerExample: TypeAlias = Float[Tensor, " batch"]
"""One number per sample."""

PerClass: TypeAlias = Float[Tensor, "batch others"]
"""One number per sample and other class."""

Mask: TypeAlias = Bool[Tensor, " batch"]
"""One boolean per sample."""

AutogradContext: TypeAlias = Any
"""`ctx` of a `torch.autograd.Function`: torch does not declare the attributes that are set on it."""

Node: TypeAlias = Any
"""A node of autograd: torch does not declare the tensors that it saved."""

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
"""Positional and keyword arguments of any function."""


HALF = (torch.float16, torch.bfloat16)


def wide(tensor: Tensor) -> Tensor:
    """Return `tensor` in float32 if it is float16 or bfloat16, else unchanged."""
    return tensor.float() if tensor.dtype in HALF else tensor


def is_binary(scores: Tensor) -> bool:
    """Whether these are the scores of a binary network: one score per sample."""
    return scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1)
