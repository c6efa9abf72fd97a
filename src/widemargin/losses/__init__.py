"""What is MINIMISED on data: one margin loss with several penalties, and the baselines it is compared with.

Every loss is a frozen value, called as `loss(model, x, y)` or, with a forward pass of one's own, `loss.of(scores, y)`,
and returns one number per sample.
"""

from widemargin.losses.classification import CrossEntropy, MultiClassHinge, ScoreLoss, SoftHinge
from widemargin.losses.margin import MarginLoss, margin_backward
from widemargin.losses.penalties import Band, Hinge, Penalty
from widemargin.losses.presets import large_margin, odn, odn_hinge
from widemargin.losses.protocol import Loss
from widemargin.losses.target import Target
from widemargin.losses.wrappers import Wrapper

__all__ = [
    "Band",
    "CrossEntropy",
    "Hinge",
    "Loss",
    "MarginLoss",
    "MultiClassHinge",
    "Penalty",
    "ScoreLoss",
    "SoftHinge",
    "Target",
    "Wrapper",
    "large_margin",
    "margin_backward",
    "odn",
    "odn_hinge",
]
