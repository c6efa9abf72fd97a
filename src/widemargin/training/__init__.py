"""Training of networks: `fit`, its optimizers, schedules and callbacks, checkpoints, histories.

    result = wm.fit(model, data, loss=wm.losses.large_margin(gamma=1.0), epochs=20)
    print(result.history.series("distance at input"))

The network is trained in place.
"""

from __future__ import annotations

from widemargin.losses.protocol import margin_backward
from widemargin.split_backward.backward import Backward
from widemargin.training.callbacks import (
    BestWeights,
    Callback,
    EarlyStopping,
    FitState,
    Measure,
    ProgressBar,
    TensorBoard,
)
from widemargin.training.checkpoint import Checkpoint
from widemargin.training.config import Devices
from widemargin.training.fit import Fit, fit
from widemargin.training.history import History, Row
from widemargin.training.optimizers import SGD, AdamW, RMSprop
from widemargin.training.optimizers import NeroOptimizer as Nero
from widemargin.training.schedules import Constant, Cosine, Exponential, Steps, WarmUp
from widemargin.training.stopping import StopFailed, TrainingStopped

__all__ = [
    "SGD",
    "AdamW",
    "Backward",
    "BestWeights",
    "Callback",
    "Checkpoint",
    "Constant",
    "Cosine",
    "Devices",
    "EarlyStopping",
    "Exponential",
    "Fit",
    "FitState",
    "History",
    "Measure",
    "Nero",
    "ProgressBar",
    "RMSprop",
    "Row",
    "Steps",
    "StopFailed",
    "TensorBoard",
    "TrainingStopped",
    "WarmUp",
    "fit",
    "margin_backward",
]
