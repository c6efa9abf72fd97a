"""Losses: `WideMargin`, the default; the papers' margin loss with several penalties; and baselines.

Every loss is a frozen value that returns one number per sample. It is called as `loss(model, x, y)`, or as
`loss.of(scores, y)` given the scores of a forward pass.
"""

from widemargin.losses.classification import (
    CrossEntropy,
    GeneralizedCrossEntropy,
    MultiClassHinge,
    ScoreLoss,
    SoftHinge,
    Target,
)
from widemargin.losses.criterion import Criterion, mean
from widemargin.losses.margin import MarginLoss
from widemargin.losses.penalties import Band, Hinge, Penalty
from widemargin.losses.presets import large_margin, odn, odn_hinge
from widemargin.losses.protocol import Loss, margin_backward
from widemargin.losses.score_criterion import ScoreCriterion, as_loss
from widemargin.losses.weighted import Weighted, balanced_weights
from widemargin.losses.wide_margin import WideMargin
from widemargin.losses.wrappers import CropsAndFlips, Wrapper

__all__ = [
    "Band",
    "Criterion",
    "CropsAndFlips",
    "CrossEntropy",
    "GeneralizedCrossEntropy",
    "Hinge",
    "Loss",
    "MarginLoss",
    "MultiClassHinge",
    "Penalty",
    "ScoreCriterion",
    "ScoreLoss",
    "SoftHinge",
    "Target",
    "Weighted",
    "WideMargin",
    "Wrapper",
    "as_loss",
    "balanced_weights",
    "large_margin",
    "margin_backward",
    "mean",
    "odn",
    "odn_hinge",
]
