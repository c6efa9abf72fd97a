"""Losses of the scores alone: those with which margin losses are compared, and the one that targets a margin."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.checks import check_choice, check_index, check_number, check_numbers, check_scores_and_labels
from widemargin.losses.kept_tensors import KeptTensors
from widemargin.losses.margin import cross_entropy
from widemargin.losses.protocol import Stacking, is_capturable
from widemargin.margins.output import differences
from widemargin.modules import ModelInputs, forward
from widemargin.probabilities import check_are_scores
from widemargin.types import Labels, PerExample, Scores, is_binary, wide


class ScoreLoss(abc.ABC):
    """A loss of the scores and labels alone."""

    stacking: ClassVar[Stacking | None] = "scores"

    def __call__(self, model: nn.Module, x: ModelInputs, y: Labels) -> PerExample:
        """The loss of every sample of a batch."""
        scores = forward(model, x)
        check_are_scores(model, scores)
        return self.of(scores, y)

    @abc.abstractmethod
    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The loss of every sample, given its scores."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(ScoreLoss):
    """−log softmax(f)_y; for a binary network log(1 + exp(−f·y)) (odn §4, Xent).

    With `label_smoothing` ε the label has a probability of 1 − ε + ε/k and every other class one of ε/k (Szegedy et al.
    2016, §7; as in `torch.nn.functional.cross_entropy`); k = 2 for a binary network.
    """

    label_smoothing: float = 0.0
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("label_smoothing", self.label_smoothing, least=0.0, most=1.0)

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The cross-entropy of every sample."""
        check_scores_and_labels(scores, y, finite=True)
        scores, smoothing = wide(scores), self.label_smoothing
        if is_binary(scores) and smoothing:
            other = cross_entropy(scores, -y)
            return (1 - smoothing / 2) * cross_entropy(scores, y) + smoothing / 2 * other
        return cross_entropy(scores, y, smoothing)


@dataclass(frozen=True, kw_only=True)
class GeneralizedCrossEntropy(ScoreLoss):
    """(1 − p_y^q)/q with p = softmax(f), for wrong labels (Zhang & Sabuncu 2018, eq. 6).

    Between cross-entropy (q → 0) and the mean absolute error 1 − p_y (q = 1). Its gradient is that of cross-entropy
    times p_y^q, so that samples whose label the network finds unlikely count little. The paper's q is 0.7.
    """

    q: float = 0.7
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("q", self.q, above=0.0, most=1.0)

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The generalized cross-entropy of every sample."""
        check_scores_and_labels(scores, y, finite=True)
        return -torch.expm1(-self.q * cross_entropy(wide(scores), y)) / self.q


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
        check_scores_and_labels(scores, y, finite=True)
        scores = wide(scores)
        if is_binary(scores):
            return F.softplus(-scores.reshape(-1) * y.to(scores.dtype))
        sign = torch.ones_like(scores).scatter(1, y[:, None].long(), -1.0)
        return F.softplus(sign * scores).mean(dim=1)


@dataclass(frozen=True, kw_only=True)
class WeightedSum(ScoreLoss):
    """Σ weight·loss, of losses of the scores (elsayed §4.2: the hinge with a small weight of cross-entropy)."""

    parts: tuple[tuple[float, ScoreLoss], ...]

    @property
    def capturable(self) -> bool:
        """Whether all of them may be captured in a CUDA graph."""
        return all(is_capturable(part) for _, part in self.parts)

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The sum for every sample."""
        return torch.stack([weight * part.of(scores, y) for weight, part in self.parts]).sum(dim=0)


@dataclass(frozen=True, kw_only=True)
class Target:
    """‖f(x_i) − α_i·y_i‖²: y_i = ±1 for a binary network, one-hot for k classes (farhang, Recipe 1, step 2).

    At zero, the output margin is α_i: the loss targets a margin instead of maximising it.
    `alpha` is one number for all samples, or a tuple of one per sample of the training set; then the loss needs the
    positions of the samples of a batch in the training set (`index=`; `fit` gives them).
    """

    alpha: float | tuple[float, ...] = 1.0
    stacking: ClassVar[Stacking] = "targets"

    def __post_init__(self) -> None:
        if isinstance(self.alpha, tuple):
            check_numbers("alpha", self.alpha)
        else:
            check_number("alpha", self.alpha)

    @property
    def needs_index(self) -> bool:
        """Whether the positions of a batch's samples must be given."""
        return isinstance(self.alpha, tuple)

    @property
    def capturable(self) -> bool:
        """Whether the loss may be captured in a CUDA graph: its α may not depend on the batch."""
        return not self.needs_index

    def __call__(self, model: nn.Module, x: ModelInputs, y: Labels, *, index: Tensor | None = None) -> PerExample:
        """The loss of every sample of a batch."""
        return self.of(forward(model, x), y, index=index)

    def of(self, scores: Scores, y: Labels, *, index: Tensor | None = None) -> PerExample:
        """The loss of every sample, given its scores."""
        check_scores_and_labels(scores, y, finite=True)
        if index is not None:
            check_index(index, len(scores))
        scores = wide(scores)
        return squared(scores, y, self._alpha(scores, index))

    def _alpha(self, scores: Tensor, index: Tensor | None) -> Tensor:
        if not isinstance(self.alpha, tuple):
            return scores.new_tensor(self.alpha)
        return self._kept.at("alpha", self.alpha, index, scores)

    @functools.cached_property
    def _kept(self) -> KeptTensors:
        return KeptTensors()


def squared(scores: Scores, y: Labels, alpha: Float[Tensor, ""] | PerExample) -> PerExample:
    """‖f(x_i) − α_i·y_i‖² of every sample, with α as a tensor: one number, or one per sample."""
    if is_binary(scores):
        return (scores.reshape(-1) - alpha * y.to(scores.dtype)).square()
    goal = alpha.reshape(-1, 1) * F.one_hot(y.long(), scores.shape[1]).to(scores.dtype)
    return (scores - goal).square().sum(dim=1)
