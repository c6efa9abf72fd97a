"""How a benchmark is run."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where, how long and what.

    Args:
        device: `"cpu"`, where networks are tiny and processor time is taken, or `"cuda"`, where they are the papers'.
        rounds: rounds in which every way has its turn; medians are over them.
        steps: steps of a turn.
        minutes: no row begins later than this.
        only: rows whose label has this in it.
    """

    device: str = "cpu"
    rounds: int = 3
    steps: int = 1
    minutes: float = math.inf
    only: str = ""

    def __post_init__(self) -> None:
        for name in ("rounds", "steps"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} is {count!r}, expected an integer >= 1")
        if not self.minutes > 0:
            raise ValueError(f"minutes is {self.minutes}, expected a number > 0")

    @property
    def on_gpu(self) -> bool:
        """Whether networks are of full size."""
        return self.device != "cpu"
