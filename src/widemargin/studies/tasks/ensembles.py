"""Averages of networks of one targeted margin (farhang §6.2).

Settings: those of the task `targeted` (binary data, a network with one output, alpha, optimizer, schedule, steps), and

    members   how many networks, with different first weights
    sizes     the numbers of them that are averaged

Row: `train accuracy` (the mean of the members'), `spread` (√(mean squared spread / mean squared prediction) of the
members on the test points, §7.3), `margin` (their median normalized margin), and the curve "draws": the accuracy of
averages of `draws` members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from widemargin import population, registry
from widemargin.control.accuracy import accuracies
from widemargin.gp import finite_ensemble
from widemargin.losses import Target
from widemargin.margins import normalized
from widemargin.modules import predict
from widemargin.studies import networks
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys, digest
from widemargin.studies.spheres import points
from widemargin.studies.tasks import targeted
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1


def run(trial: Trial, context: TrialContext) -> Row:
    """One trial."""
    return next(many([trial], context))[1]


def alike(trial: Trial) -> str:
    """Equal for trials that train together: all but α."""
    return digest({key: value for key, value in trial.settings.items() if key not in ("alpha", "sizes")})


def many(trials: Sequence[Trial], context: TrialContext) -> Iterator[tuple[Trial, Row]]:
    """The members of all trials as one population."""
    shared = trials[0].settings
    for trial in trials:
        check_keys(trial.settings, (*targeted.KEYS, "members", "sizes"))
    count = shared["members"]
    held = [points(t.settings["data"], t.seed, root=context.root, device=context.device) for t in trials]
    seeds = [trial.seed * 1000 + number for trial in trials for number in range(count)]
    trained = population.fit(
        [networks.build(shared["network"], seed, context.device) for seed in seeds],
        [one.train for one in held for _ in range(count)],
        loss=[Target(alpha=float(trial.settings["alpha"])) for trial in trials for _ in range(count)],
        optimizer=registry.optimizer(shared["optimizer"]),
        seeds=seeds,
        **networks.fit_options(shared),
    )
    for number, (trial, one) in enumerate(zip(trials, held)):
        yield trial, _row(trial.settings, trained.networks[number * count : (number + 1) * count], one)


def _row(settings: Settings, networks: Sequence[Any], one: Any) -> Row:
    with torch.no_grad():
        margin = torch.stack([normalized.frobenius(network, one.clean.x, one.clean.y) for network in networks])
    predictions = torch.stack([predict(network, one.test.x, batch_size=4096).reshape(-1) for network in networks])
    ensemble = finite_ensemble(predictions, one.test.y, sizes=settings["sizes"])
    sizes = ensemble.accuracies.items()
    return {
        "train accuracy": float(accuracies(networks, one.clean).mean()),
        "margin": float(margin.median()),
        "spread": ensemble.relative_spread,
        "points": [{"curve": "draws", "at": {"draws": size}, "accuracy": accuracy} for size, accuracy in sizes],
    }
