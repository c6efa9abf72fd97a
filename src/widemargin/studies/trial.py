"""A trial: one training (or computation) of a study, as plain values, and the key that names its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from widemargin.studies.settings import Settings, digest, plain

Stage = Literal["search", "final"]
FIRST_SEARCH_SEED = 100
"""First seed of the search: final seeds take no part in choosing."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one call of a task is given.

    Its key is the hash of what decides its result: the task and the version of it, the settings, the seed and the
    stage. Not of the names of study, arm, condition and scale: two arms of equal settings share their trials, and a
    new name reruns nothing.
    """

    task: str
    version: int
    stage: Stage
    settings: Settings
    seed: int
    study: str
    arm: str
    scale: str
    condition: Settings = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """64 hexadecimal digits."""
        return digest([self.task, self.version, self.stage, self.settings, self.seed])

    def __hash__(self) -> int:
        return hash(self.key)

    def plain(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """Where a trial runs; no field changes its result.

    Args:
        device: "cpu", "cuda", "cuda:1".
        root: the folder of the data sets; None: as `data.load` finds them.
        weights: a folder for trained networks that other trials use again; None: each trains its own.
    """

    device: str = "cpu"
    root: Path | None = None
    weights: Path | None = None


Claim: TypeAlias = Callable[[Trial], bool]
"""Whether this process is to run the trial: False where another one runs it, or has finished it."""


def unclaimed(_: Trial) -> bool:
    """Claim every trial: no other process runs them."""
    return True
