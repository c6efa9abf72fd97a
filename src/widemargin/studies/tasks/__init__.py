"""Tasks: the computations of trials.

A task is a module of this package, found by its name (`"two-words"` is `two_words.py`), with

    VERSION: int                              part of every key: raise it when the same settings should rerun
    def run(trial, context) -> Row            plain values: metrics, and curves under "points" (see `rows`)
    def many(trials, context) -> Iterator     optional: several trials as one program, with their rows,
    def alike(trial) -> str                   for those of which this is equal

`run` depends on `trial.settings`, `trial.seed` and `trial.stage` alone. In the stage "search" it never reads test
data; what a cell is chosen by (`Study.choose_by`, by default `"validation"`) must be among its metrics.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

from widemargin.studies.rows import Row
from widemargin.studies.trial import Trial, TrialContext


@runtime_checkable
class Task(Protocol):
    """A module with a version and a function."""

    VERSION: int

    def run(self, trial: Trial, context: TrialContext) -> Row:
        """Do it."""


@runtime_checkable
class ManyTask(Task, Protocol):
    """A task that can run several trials as one program."""

    def alike(self, trial: Trial) -> str:
        """Equal for trials that can run together."""

    def many(self, trials: Sequence[Trial], context: TrialContext) -> Iterator[tuple[Trial, Row]]:
        """Do them, in any order."""


def find(name: str) -> Task:
    """The task of that name."""
    module = f"{__name__}.{name.replace('-', '_')}"
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"task is {name!r}, but there is no {module}")
    return cast(Task, importlib.import_module(module))
