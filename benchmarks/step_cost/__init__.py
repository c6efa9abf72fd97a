"""Cost of a training step relative to cross-entropy, measured in turns within one run."""

from step_cost.rows import run
from step_cost.settings import Settings

__all__ = ["Settings", "run"]
