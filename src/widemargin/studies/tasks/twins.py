"""Twins by rejection (farhang §4.2): sampled networks, and networks trained to the same outputs.

Settings:

    data       see `studies.spheres.points`: a `pair` of classes, `train` points
    network    a bias-free network with one output
    pairs      how many pairs
    steps      at most so many steps for a trained twin, by Nero of learning rate `lr`, times `decay` in each
    until      the mean squared difference of outputs at which a twin is done
    whole      {"epochs": …, "batch": …, "lr": …}: no twins, but one network trained on the whole binary task, by Nero,
               to see that the architecture can

Row: `acceptance`, `reached` (the share of twins that were done), `worst` (the largest relative error of the outputs),
`worst loss` (the largest loss, over the root mean square of the sampled network's margins), `gap` (mean accuracy of
trained minus sampled ones) with its `gap error`, and the curve "twins": mean `accuracy` and its standard `error` for
each `method`. With `whole`: `train accuracy` and `accuracy`.
"""

from __future__ import annotations

import math

import torch

from widemargin import population, registry
from widemargin.control import rejection_twins
from widemargin.control.accuracy import accuracies
from widemargin.losses import Target
from widemargin.studies import networks
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys
from widemargin.studies.spheres import points
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import Constant, Exponential, Nero

VERSION = 2
_KEYS = ("data", "network", "pairs", "steps", "until", "lr", "decay", "whole")


def run(trial: Trial, context: TrialContext) -> Row:
    """One trial."""
    settings = trial.settings
    check_keys(settings, _KEYS)
    if settings.get("whole"):
        return _whole(settings, trial.seed, context)
    data = points(settings["data"], trial.seed, root=context.root, device=context.device)
    twins = rejection_twins(
        lambda: registry.network(settings["network"]),
        data.clean,
        pairs=settings["pairs"],
        test=data.test,
        seed=trial.seed,
        until=settings["until"],
        steps=settings["steps"],
        optimizer=Nero(lr=settings["lr"]),
        schedule=Exponential(factor=settings["decay"]),
        device=context.device,
        progress=False,
    )
    sampled, trained = twins.sampled_accuracies, twins.trained_accuracies
    assert sampled is not None
    assert trained is not None
    losses = (twins.trained_outputs - twins.sampled_outputs).square().mean(dim=1)
    return {
        "acceptance": twins.acceptance,
        "reached": float(twins.reached.double().mean()),
        "worst": twins.worst,
        "worst loss": float((losses / twins.sampled_outputs.square().mean(dim=1).sqrt()).max()),
        "gap": float((trained - sampled).mean()),
        "gap error": _error(trained - sampled),
        "points": [
            {"curve": "twins", "at": {"method": name}, "accuracy": float(column.mean()), "error": _error(column)}
            for name, column in (("sampled", sampled), ("trained", trained))
        ],
    }


def _whole(settings: Settings, seed: int, context: TrialContext) -> Row:
    given = settings["whole"]
    data = points({**settings["data"], "train": None}, seed, root=context.root, device=context.device)
    steps = given["epochs"] * math.ceil(len(data.train) / given["batch"])
    trained = population.fit(
        [networks.build(settings["network"], seed, context.device)],
        data.train,
        loss=Target(alpha=1.0),
        optimizer=Nero(lr=given["lr"]),
        schedule=Constant() if given.get("decay") is None else Exponential(factor=given["decay"]),
        steps=steps,
        batch_size=given["batch"],
        seeds=[seed],
        chunk=1,
        progress=False,
    )
    train, test = (float(accuracies(trained.networks, part)[0]) for part in (data.train, data.test))
    return {"train accuracy": train, "accuracy": test}


def _error(column: torch.Tensor) -> float | None:
    return float(column.std() / math.sqrt(len(column))) if len(column) > 1 else None
