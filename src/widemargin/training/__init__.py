"""Train networks: `fit`, its optimizers and schedules as frozen values, checkpoints, histories.

result = wm.fit(model, "mnist-5k", loss=wm.losses.large_margin(gamma=1.0), epochs=20, seed=0)
result.model, result.history.series("distance at input")
"""

from __future__ import annotations

from widemargin.losses.margin import margin_backward
from widemargin.split_backward.backward import Backward
from widemargin.training.fit import Fit, fit
from widemargin.training.history import History, Row
from widemargin.training.optimizers import Adam, Nero, RmsProp, Sgd
from widemargin.training.schedules import Constant, Cosine, Exponential, Steps
from widemargin.training.stopping import TrainingStopped, Watch

__all__ = [
    "Adam",
    "Backward",
    "Constant",
    "Cosine",
    "Exponential",
    "Fit",
    "History",
    "Nero",
    "RmsProp",
    "Row",
    "Sgd",
    "Steps",
    "TrainingStopped",
    "Watch",
    "fit",
    "margin_backward",
]
