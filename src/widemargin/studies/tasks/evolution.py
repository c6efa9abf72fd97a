"""Training of a classifier with its mean distance to the boundary over time (elsayed, B.2, Fig. 17 to 19).

Settings: those of `classify` without `measure`, and

    watch   {"at": [places], "p": 2.0, "scores": "softmax", "classes": 1, "every": 500, "count": 128}

Row: as of `classify`; in the final stage also points of the curve "distance" at `place`, `part` ("train", "validation",
"test") and `step`, with their `mean`, over the first `count` samples of each part, in evaluation mode; and points of
the curve "end", the same after the last step. While hyperparameters are searched nothing is watched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from widemargin import margins, population, registry
from widemargin.data import Samples
from widemargin.margins.measurement import accuracy
from widemargin.studies import networks, samples
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys
from widemargin.studies.trial import Trial, TrialContext
from widemargin.training import TrainingStopped

VERSION = 1
_KEYS = ("data", "network", "loss", "optimizer", "schedule", "steps", "batch", "watch")
_WATCH = ("at", "p", "scores", "classes", "every", "count")


def run(trial: Trial, context: TrialContext) -> Row:
    """One training."""
    given = trial.settings
    check_keys(given, _KEYS)
    check_keys(given["watch"], _WATCH, "watch", exactly=True)
    parts = samples.prepare(given["data"], trial.seed, root=context.root, device=context.device)
    loss = registry.loss(given["loss"])
    network = networks.build(given["network"], trial.seed, context.device)
    watched = None if trial.stage == "search" else Watched.of(loss, parts, given["watch"], copy.deepcopy(network))
    row: Row = {"steps": given["steps"], "died": None}
    try:
        trained = population.fit(
            [network],
            [parts.train],
            loss=[loss if watched is None else watched],
            optimizer=[registry.optimizer(given["optimizer"])],
            seeds=[trial.seed],
            chunk=1,
            device=context.device,
            **networks.fit_options(given),
        )
    except TrainingStopped as stopped:
        chance = 1 / parts.classes
        row |= {"died": str(stopped), "validation": chance}
        return row if watched is None else {**row, "accuracy": chance, "points": watched.points}
    network = trained.networks[0]
    row |= {"loss": trained.losses[0], "validation": accuracy(network, parts.validation)}
    if watched is None:
        return row
    watched.measure(network, given["steps"])
    last = watched.points[-len(given["watch"]["at"]) * len(watched.parts) :]
    end = [{**p, "curve": "end", "at": {k: v for k, v in p["at"].items() if k != "step"}} for p in last]
    return {**row, "accuracy": accuracy(network, parts.test), "points": [*watched.points, *end]}


@dataclass(kw_only=True, eq=False)
class Watched:
    """A loss, called once a step, that measures the network every `settings["every"]` steps.

    `network` is a copy for `margins.measure`: weights of a population in training are not leaves.
    """

    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    network: nn.Module
    parts: Mapping[str, Samples]
    settings: Settings
    points: list[Row] = field(default_factory=list)
    calls: int = 0

    @classmethod
    def of(cls, loss: Callable[..., Tensor], parts: samples.Parts, settings: Settings, network: nn.Module) -> Watched:
        """Over the first samples of the three parts."""
        named = {"train": parts.train, "validation": parts.validation, "test": parts.test}
        some = {name: samples.first(part, settings["count"]) for name, part in named.items()}
        return cls(loss=loss, network=network, parts=some, settings=settings)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss of every sample."""
        if self.calls % self.settings["every"] == 0:
            self.measure(model, self.calls)
        self.calls += 1
        return self.loss(model, x, y)

    def measure(self, model: nn.Module, step: int) -> None:
        """Add a point for every place and part."""
        self.network.load_state_dict(model.state_dict())
        given = self.settings
        options = {"at": given["at"], "classes": given["classes"], "read_as": given["scores"], "progress": False}
        for part, some in self.parts.items():
            measured = margins.measure(self.network, some, p=float(registry.argument(given["p"])), **options)
            for place, d in measured.statistics.items():
                at = {"place": place, "part": part, "step": step}
                self.points.append({"curve": "distance", "at": at, "mean": d.mean})
