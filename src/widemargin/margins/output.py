"""The output margin, and the differences of scores that every margin is made of."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from widemargin.checks import check_finite, check_scores_and_labels
from widemargin.types import Labels, PerClass, PerExample, Scores, is_binary, wide

Reading: TypeAlias = Literal["logits", "softmax"]
"""What f_i is: the network's own scores, or their softmax probabilities (elsayed errata 1)."""

Classes: TypeAlias = int | Literal["all"]
"""How many of the strongest other classes count."""


def output(scores: Scores, labels: Labels) -> PerExample:
    """γ = f_y(x) − max_{i≠y} f_i(x), or f(x)·y for a binary network with labels ±1 (farhang §3.1).

    Negative where misclassified. Errata 2 of farhang: the maximum runs over all i ≠ y.
    """
    return differences(scores, labels, classes=1).squeeze(1)


def differences(scores: Scores, labels: Labels, *, classes: Classes = 1, read_as: Reading = "logits") -> PerClass:
    """d_i = f_y(x) − f_i(x) against the `classes` strongest other classes i, strongest first.

    A binary network has one column: f(x)·y, or with `read_as="softmax"` the difference of the two probabilities,
    tanh(f/2)·y.
    """
    check_scores_and_labels(scores, labels)
    check_finite(scores, "scores")
    if read_as not in ("logits", "softmax"):
        raise ValueError(f"read_as is {read_as!r}, expected 'logits' or 'softmax'")
    scores = wide(scores)  # the difference of two close numbers is all that counts
    if is_binary(scores):
        _check_classes(classes, 1)
        f = scores.reshape(-1)
        f = torch.tanh(f / 2) if read_as == "softmax" else f
        return (f * labels.to(f.dtype))[:, None]
    count = _check_classes(classes, scores.shape[1] - 1)
    f = torch.softmax(scores, dim=1) if read_as == "softmax" else scores
    return f.gather(1, labels[:, None].long()) - f.gather(1, strongest(scores, labels, count))


def strongest(scores: Tensor, labels: Tensor, count: int) -> Tensor:
    """Indices `[batch, count]` of the other classes with the highest scores, highest first."""
    others = scores.detach().scatter(1, labels[:, None].long(), -torch.inf)
    if count == 1:  # much faster than topk
        return others.argmax(dim=1, keepdim=True)
    return others.topk(count, dim=1).indices


def _check_classes(classes: Classes, others: int) -> int:
    if classes == "all":
        return others
    if isinstance(classes, bool) or not isinstance(classes, int):
        raise TypeError(f"classes is {classes!r}, expected a number of other classes or 'all'")
    if not 1 <= classes <= others:
        raise ValueError(f"classes is {classes}, but scores have {others} other classes (1..{others})")
    return classes
