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
from widemargin.losses.margin import MarginLoss
from widemargin.losses.penalties import Band, Hinge, Penalty
from widemargin.losses.presets import large_margin, odn, odn_hinge
from widemargin.losses.protocol import Loss, margin_backward
from widemargin.losses.wide_margin import WideMargin
from widemargin.losses.wrappers import Wrapper

__all__ = [
    "Band",
    "CrossEntropy",
    "GeneralizedCrossEntropy",
    "Hinge",
    "Loss",
    "MarginLoss",
    "MultiClassHinge",
    "Penalty",
    "ScoreLoss",
    "SoftHinge",
    "Target",
    "WideMargin",
    "Wrapper",
    "large_margin",
    "margin_backward",
    "odn",
    "odn_hinge",
]
