"""Classification losses of the scores alone, with which margin losses are compared."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.checks import check_choice, check_finite, check_number, check_scores_and_labels
from widemargin.losses.margin import cross_entropy
from widemargin.losses.protocol import Stacking
from widemargin.margins.output import differences
from widemargin.modules import scores_of
from widemargin.types import Labels, PerExample, Scores, is_binary, wide


class ScoreLoss(abc.ABC):
    """A loss of the scores and labels alone."""

    stacking: ClassVar[Stacking | None] = "scores"

    def __call__(self, model: nn.Module, x: Tensor, y: Labels) -> PerExample:
        """The loss of every sample of a batch."""
        return self.of(scores_of(model(x)), y)

    @abc.abstractmethod
    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The loss of every sample, given its scores."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(ScoreLoss):
    """−log softmax(f)_y; for a binary network log(1 + exp(−f·y)) (odn §4, Xent)."""

    capturable: ClassVar[bool] = True

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The cross-entropy of every sample."""
        _check(scores, y)
        return cross_entropy(wide(scores), y)


@dataclass(frozen=True, kw_only=True)
class MultiClassHinge(ScoreLoss):
    """max(0, γ − (f_y − f_i)), the largest over i ≠ y (`"crammer-singer"`) or their sum (`"weston-watkins"`)."""

    gamma: float = 1.0
    kind: Literal["crammer-singer", "weston-watkins"] = "crammer-singer"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("crammer-singer", "weston-watkins"))
        check_number("gamma", self.gamma, above=0.0)

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The hinge of every sample."""
        classes: Literal["all"] | int = 1 if self.kind == "crammer-singer" else "all"
        return (self.gamma - differences(wide(scores), y, classes=classes)).clamp_min(0).sum(dim=1)


@dataclass(frozen=True, kw_only=True)
class SoftHinge(ScoreLoss):
    """(1/k)[softplus(−f_y) + Σ_{i≠y} softplus(f_i)], PyTorch's MultiLabelSoftMarginLoss on one-hot labels.

    Errata 2 of odn: as printed the loss is unbounded below. A binary network has the one term softplus(−f·y).
    """

    capturable: ClassVar[bool] = True

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The soft hinge of every sample."""
        _check(scores, y)
        scores = wide(scores)
        if is_binary(scores):
            return F.softplus(-scores.reshape(-1) * y.to(scores.dtype))
        sign = torch.ones_like(scores).scatter(1, y[:, None].long(), -1.0)
        return F.softplus(sign * scores).mean(dim=1)


@dataclass(frozen=True, kw_only=True)
class WeightedSum(ScoreLoss):
    """Σ weight·loss, of losses of the scores (elsayed §4.2: the hinge with a small weight of cross-entropy)."""

    parts: tuple[tuple[float, ScoreLoss], ...]

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The sum for every sample."""
        return torch.stack([weight * part.of(scores, y) for weight, part in self.parts]).sum(dim=0)


def _check(scores: Tensor, y: Tensor) -> None:
    check_scores_and_labels(scores, y)
    check_finite(scores, "scores")
