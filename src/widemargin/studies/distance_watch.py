"""Mean distances to the decision boundary over a training by `fit` (elsayed, B.2, Fig. 17 to 19)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from widemargin import margins, registry
from widemargin.data import Samples
from widemargin.studies import samples
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings, check_keys
from widemargin.training.callbacks import Callback, FitState

_KEYS = ("at", "p", "scores", "classes", "every", "count")


@dataclass(kw_only=True, eq=False)
class DistanceWatch(Callback):
    """Measures the network in evaluation mode before the first step, every `every` steps and after the last one.

    `settings`: {"at": [places], "p": 2.0, "scores": "softmax", "classes": 1, "every": 500, "count": 128}, where `count`
    is how many samples of each part are measured. `points` are those of the curves "distance", at `place`, `part` and
    `step`, and "end", the last of them without its step.
    """

    parts: Mapping[str, Samples]
    settings: Settings
    points: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, parts: samples.Parts, settings: Settings) -> DistanceWatch:
        """Over the first samples of the three parts."""
        check_keys(settings, _KEYS, "watch", exactly=True)
        named = {"train": parts.train, "validation": parts.validation, "test": parts.test}
        return cls(
            parts={name: samples.first(part, settings["count"]) for name, part in named.items()}, settings=settings
        )

    def on_fit_start(self, state: FitState) -> None:
        """Measure before the first step."""
        self._measure(state.model, state.step)

    def on_step_end(self, state: FitState) -> None:
        """Measure after every `every` steps and after the last one."""
        is_last = state.step == state.steps
        if is_last or state.step % self.settings["every"] == 0:
            self._measure(state.model, state.step)
        if is_last:
            at_end = self.points[-len(self.settings["at"]) * len(self.parts) :]
            self.points += [
                {**point, "curve": "end", "at": {key: value for key, value in point["at"].items() if key != "step"}}
                for point in at_end
            ]

    def _measure(self, model: nn.Module, step: int) -> None:
        given = self.settings
        options = {"at": given["at"], "classes": given["classes"], "read_as": given["scores"], "progress": False}
        for part, some in self.parts.items():
            measured = margins.measure(model, some, p=float(registry.argument(given["p"])), **options)
            for place, distances in measured.statistics.items():
                at = {"place": place, "part": part, "step": step}
                self.points.append({"curve": "distance", "at": at, "mean": distances.mean})
