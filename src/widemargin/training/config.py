"""What a training is asked for, where it stands, and what it hands back: values that travel between processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from widemargin.training.history import Row
from widemargin.training.optimizers import MakesOptimizer
from widemargin.training.schedules import Schedule
from widemargin.training.stopping import Watch


@dataclass(frozen=True, kw_only=True)
class Task:
    """The checked arguments of `fit`."""

    model: nn.Module
    data: Any
    loss: Any
    epochs: int
    regularizers: tuple[Any, ...]
    optimizer: MakesOptimizer
    schedule: Schedule
    batch_size: int
    seed: int
    validation: Any
    at: tuple[str, ...] | None
    p: float
    measure_every: int | None
    measure_on: int
    checkpoint: Path | None
    checkpoint_every: int
    watch: Watch | None
    precision: str | None
    memory: int | None
    graph: bool
    tensorboard: str | os.PathLike[str] | None
    progress: bool | None


class Outcome(NamedTuple):
    """What a process hands back; `weights` in safetensors' format, or None where the network itself was trained.

    Not a frozen dataclass as everything else, since Fabric does not carry those from process to process.
    """

    weights: bytes | None
    rows: list[Row]
    settings: dict[str, str]


@dataclass(kw_only=True)
class Position:
    """Where a training stands: plain values, stored in every checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    objective: float = 0.0  # sums over the samples seen since the last row,
    seen: int = 0
    epoch_loss: float = 0.0  # and since the epoch began
    epoch_seen: int = 0
    alive: bool = False  # has a gradient of this epoch been other than zero?
    backward: dict[str, str] = field(default_factory=dict)  # the ways that gradients of margin losses went, in words
    means: list[float] = field(default_factory=list)  # losses of past epochs, as many as `Watch` needs
    rows: list[Row] = field(default_factory=list)
