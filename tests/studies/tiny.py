"""Small studies for the tests of the harness, and a task that counts its calls."""

from __future__ import annotations

import dataclasses
from typing import Any

from widemargin.studies.claims import Claim
from widemargin.studies.effects import Gap
from widemargin.studies.schema import Arm, Scale, ScaleName, Study, axis
from widemargin.studies.trial import Trial, TrialContext

SETTINGS: dict[str, Any] = {
    "data": {"name": "digits", "validation": 200, "train": 60, "test": 100},
    "network": {"name": "elsayed-mnist-cnn", "size": 8, "widths": (2, 3), "hidden": (6,)},
    "loss": {"name": "cross-entropy"},
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "steps": 3,
    "batch": 20,
    "dtype": "float64",
}


def trial(stage: Any = "final", seed: int = 0, **settings: Any) -> Trial:
    """A trial of `classify` with these settings over the tiny ones."""
    from widemargin.studies.settings import overlay

    return Trial(
        task="classify",
        version=1,
        stage=stage,
        settings=overlay(SETTINGS, settings),
        seed=seed,
        study="E3",
        arm="a",
        scale="smoke",
    )


def study(*, arms: tuple[Arm, ...] | None = None, scale: Scale | None = None, **changes: Any) -> Study:
    """A study of the task `counting`, whose rows are made of the settings."""
    one = Scale(minutes=1, seeds=3, cells=2) if scale is None else scale
    names: tuple[ScaleName, ...] = ("smoke", "quick", "budget", "paper")
    made = Study(
        id="E3",
        source="nowhere",
        title="tiny",
        question="?",
        task="counting",
        arms=arms or (Arm(name="a", search={"x": (1.0, 2.0, 3.0)}), Arm(name="b", search={"x": (5.0, 4.0)})),
        axes={"noise": axis("noise", (0.0, 0.1))},
        claims=(
            Claim(
                text="a above b",
                effect=Gap(metric="accuracy", arm="b", against="a", where={"noise": 0.0}),
                reported=200.0,
            ),
        ),
        scales=dict.fromkeys(names, one),
    )
    return dataclasses.replace(made, **changes)


class Counting:
    """A task whose accuracy is x + noise + seed/100, that keeps the trials it ran, and may die at the nth."""

    VERSION = 1

    def __init__(self) -> None:
        self.ran: list[Trial] = []
        self.dies_at: int | None = None

    def run(self, trial: Trial, context: TrialContext) -> dict[str, Any]:
        if self.dies_at is not None and len(self.ran) == self.dies_at:
            raise KeyboardInterrupt
        self.ran.append(trial)
        value = trial.settings["x"] + trial.settings["noise"] + trial.seed / 100
        if trial.stage == "search":
            return {"validation": value}
        return {"accuracy": value, "points": [{"curve": "c", "at": {"e": 0.5}, "accuracy": value / 2}]}
