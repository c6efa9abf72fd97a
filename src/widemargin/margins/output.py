"""The output margin, and differences of scores to other classes: all of them, or the k strongest."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from widemargin.checks import check_choice, check_scores_and_labels
from widemargin.types import Labels, PerClass, PerExample, Scores, is_binary, wide

Reading: TypeAlias = Literal["logits", "softmax", "probabilities"]
"""f_i as the scores of the network, or as their softmax probabilities (elsayed errata 1). `"probabilities"`: the
network returns probabilities, which are read as scores (`from_probabilities`) before anything is computed from them."""

Classes: TypeAlias = int | Literal["all"]
"""Number of other classes, those with the highest scores first."""


def of_scores(read_as: Reading) -> Literal["logits", "softmax"]:
    """`read_as` for scores: `"probabilities"` have been converted to scores already."""
    return "softmax" if read_as == "softmax" else "logits"


def output(scores: Scores, y: Labels) -> PerExample:
    """γ = f_y(x) − max_{i≠y} f_i(x), or f(x)·y for a binary network with y = ±1 (farhang §3.1).

    Negative where misclassified. Errata 2 of farhang: the maximum runs over all i ≠ y.
    """
    return differences(scores, y, classes=1).squeeze(1)


def differences(scores: Scores, y: Labels, *, classes: Classes = 1, read_as: Reading = "logits") -> PerClass:
    """d_i = f_y(x) − f_i(x) against the `classes` strongest other classes i, strongest first.

    A binary network has one column: f(x)·y, or with `read_as="softmax"` the difference of the two probabilities,
    tanh(f/2)·y.
    """
    check_scores_and_labels(scores, y, finite=True)
    check_choice("read_as", read_as, ("logits", "softmax"))  # probabilities are read where the network is known
    scores = wide(scores)  # differences of close numbers need the precision
    if is_binary(scores):
        _check_classes(classes, 1)
        return against(scores, y, None, read_as=read_as)
    count = _check_classes(classes, scores.shape[1] - 1)
    return against(scores, y, strongest(scores, y, count), read_as=read_as)


def against(
    scores: Scores, y: Labels, others: Int[Tensor, "batch others"] | None, *, read_as: Reading = "logits"
) -> PerClass:
    """`differences` against given other classes; None for a binary network. Nothing is checked."""
    scores = wide(scores)
    if others is None:
        f = scores.reshape(-1)
        f = torch.tanh(f / 2) if read_as == "softmax" else f
        return (f * y.to(f.dtype))[:, None]
    f = torch.softmax(scores, dim=1) if read_as == "softmax" else scores
    return f.gather(1, y[:, None].long()) - f.gather(1, others)


def strongest(scores: Tensor, y: Tensor, count: int) -> Tensor:
    """Indices `[batch, count]` of the other classes with the highest scores, highest first."""
    others = scores.detach().scatter(1, y[:, None].long(), -torch.inf)
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
