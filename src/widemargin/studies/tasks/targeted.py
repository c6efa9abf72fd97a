"""Training to a margin (farhang's squared loss to α-scaled labels), with or without control of the weights.

Settings:

    data        see `studies.spheres.points`
    network     {"name": "farhang-mlp", "width": …, "depth": …, "sigma": …}
    alpha       the margin that is targeted
    optimizer   {"name": "nero", "lr": 0.01} keeps ‖W_l‖_F = √d_l; {"name": "sgd", "lr": …} does not
    schedule    {"name": "exponential", "factor": 0.999, "unit": "steps"}
    steps       at most so many, each on all points, or on `batch` of them
    until       stop where the mean loss is below this
    matmul      how exact matrix products are while it trains, as `torch.set_float32_matmul_precision` names it
    spectral    true: measure spectrally-normalized margins too, the reference being the first weights (after the
                first projection where there is one: errata 9)

Row: `accuracy` and `train accuracy` (of the clean points, with the labels they were given), `loss`, `steps`, `margin`
(the median Frobenius-normalized margin of the clean points), `targeted` (α·Π_l √d_l/‖W_l‖_F, the margin of a network
that meets its target), `spectral` (the median), and the quantiles of both margins as the curve "margins". A search sees
`loss`, `steps` and `train accuracy` alone: rates are chosen by how well they train.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from widemargin import population, registry
from widemargin.control.accuracy import accuracies
from widemargin.data import Samples
from widemargin.losses import Target
from widemargin.margins import normalized
from widemargin.optim import Nero, param_groups
from widemargin.studies import networks
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys, digest
from widemargin.studies.spheres import points
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import TrainingStopped

VERSION = 1
DIED = 1e30
"""The loss of a training that died, which no search chooses."""

QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
KEYS = ("data", "network", "alpha", "optimizer", "schedule", "steps", "batch", "until", "matmul", "spectral")


def run(trial: Trial, context: TrialContext) -> Row:
    """One trial."""
    return next(many([trial], context))[1]


def alike(trial: Trial) -> str:
    """Equal for trials that train together: all but α, the scale of the first weights, the labels and the rate."""
    settings = copy.deepcopy(dict(trial.settings))
    for owner, key in (("network", "sigma"), ("data", "labels"), ("optimizer", "lr")):
        settings[owner].pop(key, None)
    return digest({key: value for key, value in settings.items() if key not in ("alpha", "spectral")})


def many(trials: Sequence[Trial], context: TrialContext) -> Iterator[tuple[Trial, Row]]:
    """Trials of one `alike` as a population."""
    for trial in trials:
        check_keys(trial.settings, KEYS)
    firsts = [networks.build(trial.settings["network"], trial.seed, context.device) for trial in trials]
    yield from zip(trials, _rows(trials, firsts, context))


def _rows(trials: Sequence[Trial], firsts: Sequence[nn.Module], context: TrialContext) -> Iterator[Row]:
    shared = trials[0].settings
    held = [points(t.settings["data"], t.seed, root=context.root, device=context.device) for t in trials]
    exact = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(shared.get("matmul", exact))
    try:
        trained = population.fit(
            firsts,
            [one.train for one in held],
            loss=[Target(alpha=float(trial.settings["alpha"])) for trial in trials],
            optimizer=[registry.optimizer(trial.settings["optimizer"]) for trial in trials],
            seeds=[trial.seed for trial in trials],
            chunk=1 if len(trials) == 1 else None,
            **networks.fit_options(shared),
        )
    except TrainingStopped as stopped:
        if len(trials) > 1:  # one of them died: train each by itself
            for trial, first in zip(trials, firsts):
                yield from _rows([trial], [first], context)
            return
        yield _dead(trials[0], held[0].test, str(stopped))
        return
    finally:
        torch.set_float32_matmul_precision(exact)
    ends = zip(trials, firsts, trained.networks, held, trained.losses, trained.steps)
    for trial, first, network, one, loss, steps in ends:
        row = {"loss": loss, "steps": steps, "died": None}
        row["train accuracy"] = float(accuracies([network], one.clean)[0])
        if trial.stage == "final":
            row["accuracy"] = float(accuracies([network], one.test)[0])
            row |= _margins(trial.settings, first, network, one.clean)
        yield row


def _margins(settings: Settings, first: nn.Module, network: nn.Module, clean: Samples) -> Row:
    sizes = [math.sqrt(len(weight)) / float(weight.detach().norm()) for _, weight in normalized.weights(network)]
    with torch.no_grad():
        margins = {"margin": normalized.frobenius(network, clean.x, clean.y)}
        if settings.get("spectral"):
            margins["spectral"] = normalized.spectral(network, clean.x, clean.y, reference=_reference(settings, first))
    points = [
        {"curve": "margins", "at": {"quantile": q}}
        | {name: float(torch.quantile(values.double(), q)) for name, values in margins.items()}
        for q in QUANTILES
    ]
    medians = {name: float(values.median()) for name, values in margins.items()}
    return {**medians, "targeted": settings["alpha"] * math.prod(sizes), "points": points}


def _reference(settings: Settings, first: nn.Module) -> nn.Module:
    if settings["optimizer"]["name"] == "nero":
        first = copy.deepcopy(first)
        Nero(param_groups(first))  # projects as it begins
    return first


def _dead(trial: Trial, test: Samples, why: str) -> Row:
    chance = 1 / len(test.y.unique())
    row = {"loss": DIED, "steps": 0, "died": why, "train accuracy": chance}
    return row | ({"accuracy": chance} if trial.stage == "final" else {})
