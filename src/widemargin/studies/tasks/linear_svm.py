"""A linear classifier trained by a margin loss, against an exact SVM solver (elsayed, §3.2).

The margin of an SVM is the largest γ at which the hinge of the distance, max(0, γ − d), can still be driven to zero for
all samples. It is found by bisection: each γ starts from the separator of the last one that was reached.

Settings:

    data     {"name": "gaussian", "dimensions": 2, "samples": 40}: a Gaussian cloud without a strip around a plane;
             {"name": "digits", "classes": [0, 1]}: two classes of that data set
    loss     see `registry.loss`, without its gamma
    lr       of gradient descent on all samples, which falls to zero over `steps`
    steps    for each γ
    close    the bisection ends where γ is known up to this share

Row: `cosine` of the angle between the separator's normal and scikit-learn's, `margin` and `widest` (the smallest
distance of a sample to either separator), `share`, the former of the latter.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import data, registry
from widemargin.data.seeds import generator
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys
from widemargin.studies.trial import Trial, TrialContext

VERSION = 2
_KEYS = ("data", "loss", "lr", "steps", "close")


def run(trial: Trial, context: TrialContext) -> Row:
    """One data set, both separators."""
    from sklearn.svm import SVC

    given = trial.settings
    check_keys(given, _KEYS, exactly=True)
    x, y = _samples(given["data"], trial.seed, context)
    exact = SVC(kernel="linear", C=1e8, tol=1e-9).fit(x.numpy(), y.numpy())
    best, offset = torch.tensor(exact.coef_[0]), float(exact.intercept_[0])
    w, b = separator(x, y, given, trial.seed)
    margin, widest = _smallest(w, b, x, y), _smallest(best, offset, x, y)
    cosine = float(w @ best / (w.norm() * best.norm()))
    return {"cosine": cosine, "margin": margin, "widest": widest, "share": margin / widest}


def separator(x: Tensor, y: Tensor, settings: Settings, seed: int) -> tuple[Tensor, float]:
    """Normal and offset of the plane at the largest γ that was reached."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = nn.Linear(x.shape[1], 2).double()
    low, high = 0.0, float(torch.cdist(x[y == 0], x[y == 1]).min()) / 2  # no margin is wider than half the closest pair
    top, state = high, copy.deepcopy(model.state_dict())
    while high - low > settings["close"] * max(low, 0.05 * top):
        gamma = (low + high) / 2
        model.load_state_dict(state)
        if _driven_to_zero(model, x, y, registry.loss({**settings["loss"], "gamma": gamma}), settings):
            low, state = gamma, copy.deepcopy(model.state_dict())
        else:
            high = gamma
    weight, bias = state["weight"], state["bias"]
    return weight[1] - weight[0], float(bias[1] - bias[0])


def _driven_to_zero(model: nn.Linear, x: Tensor, y: Tensor, loss: Any, settings: Settings) -> bool:
    steps = settings["steps"]
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / steps) ** 2)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model, x, y).mean()
        if value.item() == 0:
            return True
        value.backward()
        optimizer.step()
        schedule.step()
    return False


def _samples(settings: Settings, seed: int, context: TrialContext) -> tuple[Tensor, Tensor]:
    if settings["name"] == "gaussian":
        draw = generator("separable", seed)
        dimensions, count = settings["dimensions"], settings["samples"]
        w = torch.randn(dimensions, generator=draw, dtype=torch.float64)
        x = torch.randn(4 * count, dimensions, generator=draw, dtype=torch.float64)
        side = x @ w / w.norm()
        outside = side.abs() > 0.3
        return x[outside][:count] + 0.5, (side[outside][:count] > 0).long()
    train = data.load(settings["name"], context.root).train
    first, second = settings["classes"]
    both = (train.y == first) | (train.y == second)
    x = train.x[both].flatten(1).double()
    x = x - x.mean(dim=0)  # moves either separator along, and makes descent on weights and offset alike
    y = (train.y[both] == second).long()
    if settings.get("samples") is None:
        return x, y
    kept = torch.randperm(len(x), generator=generator("of two classes", seed))[: settings["samples"]]
    return x[kept], y[kept]


def _smallest(w: Tensor, b: float, x: Tensor, y: Tensor) -> float:
    return float(((2 * y - 1) * (x @ w + b)).min() / w.norm())
