"""Class weights and sample weights of any loss."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from widemargin._autograd import distributed_stats
from widemargin.checks import check_count, check_dense, check_flag, check_index, check_numbers, is_capturing
from widemargin.losses.classification import CrossEntropy
from widemargin.losses.kept_tensors import KeptTensors
from widemargin.losses.protocol import Loss, is_capturable, needs_index, values_of
from widemargin.losses.score_criterion import as_loss
from widemargin.losses.wrappers import Wrapper
from widemargin.modules import ModelInputs
from widemargin.types import Labels, PerExample

Weights: TypeAlias = tuple[float, ...]
GivenWeights: TypeAlias = Sequence[float | int] | Tensor


@dataclass(frozen=True, kw_only=True)
class Weighted(Wrapper):
    """w_i·L of every sample i, with w_i the weight of its class, of the sample, or the product of both.

    The weights multiply the values of L and nothing inside it: statistics of the batch, such as the step length and the
    accuracy of `WideMargin` and the scale of `MarginLoss`, count every sample once. A wrapped `MarginLoss` takes two
    backward passes instead of the fast one.

    Args:
        loss: L, any loss `(model, x, y) -> [batch]` or criterion `(scores, y)`.
        classes: one number ≥ 0 per class; for a binary network those of −1 and +1. `balanced_weights(y)` gives
            those under which all classes of a training set count the same.
        samples: one number ≥ 0 per sample of the training set. The loss then needs `index=`, the positions of the
            samples of a batch, which `fit` gives (without a CUDA graph); in a loop of your own multiply instead.
        normalize: divide by the mean weight of the batch, as PyTorch's criteria do. Without it a mean over batches is
            the mean over the data, whatever the batches are.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    classes: GivenWeights | None = None
    samples: GivenWeights | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_loss(self.loss))
        check_flag("normalize", self.normalize)
        if self.classes is None and self.samples is None:
            raise ValueError("classes and samples are None, expected weights of classes, of samples, or both")
        for name in ("classes", "samples"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_weights(name, getattr(self, name)))

    @property
    def needs_index(self) -> bool:
        """Whether the positions of the samples are needed: for weights of samples, or by the wrapped loss."""
        return self.samples is not None or needs_index(self.loss)

    @property
    def capturable(self) -> bool:
        """Whether the wrapped loss may be captured in a CUDA graph."""
        return is_capturable(self.loss)

    def __call__(self, model: nn.Module, x: ModelInputs, y: Labels, *, index: Tensor | None = None) -> PerExample:
        """The weighted loss of every sample."""
        values = values_of(self.loss, model, x, y, index)
        if index is not None:
            check_index(index, len(y))
        weights = torch.ones_like(values)
        if self.classes is not None:
            by_class = self._kept.get("classes", cast("Weights", self.classes), values)
            weights = weights * class_weights(by_class, y)
        if self.samples is not None:
            weights = weights * self._kept.at("samples", cast("Weights", self.samples), index, values)
        return weigh(values, weights, normalize=self.normalize)

    @functools.cached_property
    def _kept(self) -> KeptTensors:
        return KeptTensors()


def weigh(values: PerExample, weights: PerExample, *, normalize: bool) -> PerExample:
    """`values` times `weights`; with `normalize` divided by the mean weight, so that their mean is a weighted mean."""
    return values * weights / distributed_stats.mean(weights) if normalize else values * weights


def class_weights(weights: Tensor, y: Labels) -> Tensor:
    """The weight of the class of every sample: class indices, or −1 and +1."""
    if y.is_floating_point():
        if len(weights) != 2:
            raise ValueError(f"classes has {len(weights)} entries, expected those of -1 and 1 (one score per sample)")
        return weights[(y > 0).long()]
    if not is_capturing(y.device) and int(y.max()) >= len(weights):
        raise ValueError(f"classes has {len(weights)} entries, but a label is {int(y.max())}")
    return weights[y.long()]


def balanced_weights(y: Labels, *, classes: int | None = None) -> Weights:
    """n/(k·n_c) for every class c: with these weights all k classes that occur count the same, 1 on average.

    As scikit-learn's `class_weight="balanced"`. A class without a sample has the weight 0.

    Args:
        y: all labels of the training set: class indices, or −1.0 and +1.0.
        classes: the number of classes, by default the largest label + 1.
    """
    check_dense(y, "y", "[samples]")
    if y.ndim != 1:
        raise ValueError(f"y has shape {list(y.shape)}, expected [samples]")
    if classes is not None:
        check_count("classes", classes)
    indices = (y > 0).long() if y.is_floating_point() else y.long()
    if not len(indices):
        raise ValueError("y is empty, expected the labels of a training set")
    least = 2 if y.is_floating_point() else int(indices.max()) + 1
    if classes is not None and classes < least:
        raise ValueError(f"classes is {classes}, but y has the label {least - 1}")
    counts = torch.bincount(indices.cpu(), minlength=classes or least).double()
    present = int((counts > 0).sum())
    return tuple(len(indices) / (present * count) if count else 0.0 for count in counts.tolist())


def checked_weights(name: str, weights: GivenWeights) -> Weights:
    """The weights as floats; raises unless they are finite numbers >= 0."""
    found = weights.tolist() if isinstance(weights, Tensor | np.ndarray) else weights
    found = tuple(found) if isinstance(found, Sequence) and not isinstance(found, str) else found
    check_numbers(name, found, least=0.0)
    return tuple(map(float, found))
