"""Arms of the grid: losses and regularizers, each with one default for everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from widemargin import losses, regularizers, training

BASE, DEFAULT = "cross-entropy", "wide margin"
MMA = "mma"
"""Max-margin adversarial training, which has an objective of its own (`default_grid.mma`)."""

RATES = {"sgd": (0.01, 0.03, 0.1), "adam": (3e-4, 1e-3, 3e-3)}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What is minimised, and the cost of a step, relative to that of cross-entropy, for the order of the jobs."""

    loss: losses.Loss
    regularizers: Sequence[Any] = ()
    decays: bool = False
    cost: float = 1.0
    group: int = 1

    @property
    def is_baseline(self) -> bool:
        """Whether the arm is not a form of `WideMargin`."""
        return not isinstance(self.loss, losses.WideMargin)


ARMS = {
    BASE: Arm(loss=losses.CrossEntropy(), group=0),
    DEFAULT: Arm(loss=losses.WideMargin(), cost=2.4, group=0),
    "weight decay": Arm(loss=losses.CrossEntropy(), decays=True),
    "label smoothing": Arm(loss=losses.CrossEntropy(label_smoothing=0.1)),
    "generalized cross-entropy": Arm(loss=losses.GeneralizedCrossEntropy()),
    "jacobian": Arm(loss=losses.CrossEntropy(), regularizers=(regularizers.JacobianFrobenius(weight=0.03),), cost=8.0),
    "wide margin, generalized": Arm(loss=losses.WideMargin(base=losses.GeneralizedCrossEntropy()), cost=2.4),
    "wide margin, share 1/8": Arm(loss=losses.WideMargin(share=1 / 8), cost=1.4),
    "odn": Arm(loss=losses.odn(), cost=2.0),
    "large margin": Arm(loss=losses.large_margin(), cost=6.0),
    MMA: Arm(loss=losses.CrossEntropy(), cost=14.0, group=2),
}


def optimizer(family: str, lr: float, arm: Arm) -> training.SGD | training.AdamW:
    """SGD with momentum 0.9 or Adam; with weight decay 5e-4 and 0.01 (decoupled), the usual values of each."""
    if family == "sgd":
        return training.SGD(lr=lr, momentum=0.9, weight_decay=5e-4 if arm.decays else 0.0)
    return training.AdamW(lr=lr, weight_decay=0.01 if arm.decays else 0.0)
