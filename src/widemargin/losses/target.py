"""The squared loss to α-scaled labels, which targets a margin instead of maximising it (farhang, Recipe 1, step 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.checks import check_finite, check_scores_and_labels
from widemargin.losses.protocol import Stacking
from widemargin.modules import scores_of
from widemargin.types import Labels, PerExample, Scores, is_binary, wide


@dataclass(frozen=True, kw_only=True)
class Target:
    """‖f(x_i) − α_i·y_i‖²: y_i = ±1 for a binary network, one-hot for k classes. At zero, the output margin is α_i.

    `alpha` is one number for all samples, or a tuple of one per sample of the training set; then the loss needs the
    positions of the samples of a batch in the training set (`index=`; `fit` gives them).
    """

    alpha: float | tuple[float, ...] = 1.0
    stacking: ClassVar[Stacking] = "targets"

    def __post_init__(self) -> None:
        if isinstance(self.alpha, tuple) and not self.alpha:
            raise ValueError("alpha is an empty tuple, expected one number, or one per training sample")

    @property
    def needs_index(self) -> bool:
        """Whether the positions of a batch's samples must be given."""
        return isinstance(self.alpha, tuple)

    @property
    def capturable(self) -> bool:
        """Whether the loss may be captured in a CUDA graph: its α may not depend on the batch."""
        return not self.needs_index

    def __call__(self, model: nn.Module, x: Tensor, y: Labels, *, index: Tensor | None = None) -> PerExample:
        """The loss of every sample of a batch."""
        return self.of(scores_of(model(x)), y, index=index)

    def of(self, scores: Scores, y: Labels, *, index: Tensor | None = None) -> PerExample:
        """The loss of every sample, given its scores."""
        check_scores_and_labels(scores, y)
        check_finite(scores, "scores")
        scores = wide(scores)
        return squared(scores, y, self._alpha(scores, index))

    def _alpha(self, scores: Tensor, index: Tensor | None) -> Tensor:
        if not isinstance(self.alpha, tuple):
            return scores.new_tensor(self.alpha)
        if index is None or len(index) != len(scores):
            raise ValueError(
                f"index is {'None' if index is None else f'of {len(index)} entries'}, but alpha holds one number per "
                f"training sample: expected the positions of the {len(scores)} samples of this batch"
            )
        if int(index.max()) >= len(self.alpha) or int(index.min()) < 0:
            raise ValueError(f"index has {int(index.max())}, but alpha has {len(self.alpha)} entries")
        return torch.tensor(self.alpha, dtype=scores.dtype, device=scores.device)[index.to(scores.device)]


def squared(scores: Scores, y: Labels, alpha: Float[Tensor, ""] | PerExample) -> PerExample:
    """‖f(x_i) − α_i·y_i‖² of every sample, with α as a tensor: one number, or one per sample."""
    if is_binary(scores):
        return (scores.reshape(-1) - alpha * y.to(scores.dtype)).square()
    goal = alpha.reshape(-1, 1) * F.one_hot(y.long(), scores.shape[1]).to(scores.dtype)
    return (scores - goal).square().sum(dim=1)
