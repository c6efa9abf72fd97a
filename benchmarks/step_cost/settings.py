"""Settings of a benchmark run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from widemargin.checks import check_count, check_number


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Device, length and selection of a run.

    Args:
        device: `"cpu"` (tiny networks, processor time) or `"cuda"` (the papers' networks, wall-clock time).
        rounds: rounds in which every method has its turn; medians are over them.
        steps: steps of a turn.
        minutes: no row begins later than this.
        only: measure only rows whose label contains this text.
    """

    device: str = "cpu"
    rounds: int = 3
    steps: int = 1
    minutes: float = math.inf
    only: str = ""

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)
        check_count("steps", self.steps)
        if self.minutes != math.inf:
            check_number("minutes", self.minutes, above=0.0)

    @property
    def on_gpu(self) -> bool:
        """Whether networks are of full size."""
        return self.device != "cpu"
