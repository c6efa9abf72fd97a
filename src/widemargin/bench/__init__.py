"""What a training step costs, measured: ratios to a step of cross-entropy, taken in turns in one run."""

from widemargin.bench.rows import run
from widemargin.bench.settings import Settings

__all__ = ["Settings", "run"]
