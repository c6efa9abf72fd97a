"""Train a classifier and measure its mean distance to the boundary on the way (elsayed, B.2, Fig. 17 to 19).

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
from typing import Any

from torch import Tensor, nn

from widemargin import margins, population, registry
from widemargin.data import Samples
from widemargin.margins.accuracy import accuracy
from widemargin.studies import samples
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
    network = population.build(lambda: registry.network(given["network"]), [trial.seed])[0].to(context.device)
    watched = None
    if trial.stage != "search":
        watched = Watched.of(loss, parts, given["watch"], copy.deepcopy(network))
    row: Row = {"steps": given["steps"], "died": None}
    try:
        trained = population.fit(
            [network],
            [parts.train],
            loss=[loss if watched is None else watched],
            optimizer=[registry.optimizer(given["optimizer"])],
            schedule=registry.schedule(given["schedule"]),
            steps=given["steps"],
            batch_size=given["batch"],
            seeds=[trial.seed],
            chunk=1,
            device=context.device,
            progress=False,
        )
    except TrainingStopped as stopped:
        chance = 1 / parts.classes
        row |= {"died": str(stopped), "validation": chance}
        return row if watched is None else {**row, "accuracy": chance, "points": watched.points}
    network = trained.networks[0]
    row |= {"loss": trained.losses[0], "validation": accuracy(network, parts.validation)}
    if watched is None:
        return row
    watched.look(network, given["steps"])
    end = [{**p, "curve": "end", "at": {k: v for k, v in p["at"].items() if k != "step"}} for p in watched.points]
    return {
        **row,
        "accuracy": accuracy(network, parts.test),
        "points": [*watched.points, *end[-len(given["watch"]["at"]) * len(watched.parts) :]],
    }


@dataclass(kw_only=True, eq=False)
class Watched:
    """A loss that is called once a step, and now and then looks at the network before it answers."""

    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    network: (
        nn.Module
    )  # another of the same kind: weights in training are no leaves, and no place for `margins.measure`
    parts: Mapping[str, Samples]
    settings: Settings
    points: list[Row] = field(default_factory=list)
    calls: int = 0

    @classmethod
    def of(cls, loss: Any, parts: samples.Parts, settings: Settings, network: nn.Module) -> Watched:
        """Over the first samples of the three parts."""
        named = {"train": parts.train, "validation": parts.validation, "test": parts.test}
        some = {name: samples.first(part, settings["count"]) for name, part in named.items()}
        return cls(loss=loss, network=network, parts=some, settings=settings)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss of every sample."""
        if self.calls % self.settings["every"] == 0:
            self.look(model, self.calls)
        self.calls += 1
        return self.loss(model, x, y)

    def look(self, model: nn.Module, step: int) -> None:
        """Add a point for every place and part."""
        self.network.load_state_dict(model.state_dict())
        for part, some in self.parts.items():
            found = margins.measure(
                self.network,
                some,
                at=self.settings["at"],
                p=float(registry.argument(self.settings["p"])),
                classes=self.settings["classes"],
                read_as=self.settings["scores"],
                progress=False,
            )
            for place, d in found.statistics.items():
                at = {"place": place, "part": part, "step": step}
                self.points.append({"curve": "distance", "at": at, "mean": d.mean})
