"""A loss as an `nn.Module` that returns one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from widemargin.checks import check_choice
from widemargin.losses.protocol import Loss
from widemargin.losses.score_criterion import ScoreCriterion, as_loss
from widemargin.losses.weighted import Weighted, checked_weights, class_weights, weigh
from widemargin.modules import ModelInputs
from widemargin.types import Labels, PerExample


class Criterion(nn.Module):
    """`criterion(model, x, y)`: the mean or the sum of a loss, as an `nn.Module` with `.to(device)` and `state_dict`.

    With weights the mean is Σ w·L / Σ w, as that of PyTorch's criteria.

    Args:
        loss: a loss `(model, x, y) -> [batch]`, or a criterion `(scores, y)`.
        weight: one number ≥ 0 per class, a buffer of the module; for a binary network those of −1 and +1.
        reduction: "mean", "sum", or "none" for one number per sample.
    """

    weight: Tensor | None

    def __init__(
        self,
        loss: object,
        *,
        weight: Tensor | Sequence[float] | None = None,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.loss, self.reduction = as_loss(loss), reduction
        if isinstance(self.loss, ScoreCriterion) and isinstance(self.loss.criterion, nn.Module):
            self.inner = self.loss.criterion  # its buffers are a part of the state
        self.register_buffer("weight", None if weight is None else torch.tensor(checked_weights("weight", weight)))

    def forward(
        self, model: nn.Module, x: ModelInputs, y: Labels, *, sample_weight: PerExample | None = None
    ) -> Tensor:
        """The loss of the batch; `sample_weight`, one number per sample, multiplies the weights of the classes."""
        values = self.loss(model, x, y)
        weights = None if sample_weight is None else sample_weight.to(values)
        if self.weight is not None:
            by_class = class_weights(self.weight.to(values), y)
            weights = by_class if weights is None else weights * by_class
        if weights is not None:
            values = weigh(values, weights, normalize=self.reduction == "mean")
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" else values.sum()

    def extra_repr(self) -> str:
        """The loss and the reduction."""
        return f"{self.loss}, reduction={self.reduction!r}"

    @property
    def per_sample(self) -> Loss:
        """The same as a loss `(model, x, y) -> [batch]`, whose mean it is; for `fit`."""
        if self.reduction == "sum":
            raise ValueError("reduction is 'sum', but a training minimises a mean, expected reduction='mean'")
        if self.weight is None:
            return self.loss
        weights = tuple(self.weight.tolist())
        return Weighted(loss=self.loss, classes=weights, normalize=self.reduction == "mean")


def mean(loss: object) -> Criterion:
    """`Criterion(loss)`: an `nn.Module` called as `criterion(model, x, y)` that returns the mean of `loss`."""
    return Criterion(loss)
