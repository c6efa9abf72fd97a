"""Settings, position and outcome of a training: values that travel between processes."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from widemargin._io.optional import not_installed
from widemargin.checks import check_callable, check_choice, check_count, check_flag, check_several
from widemargin.losses.protocol import Loss
from widemargin.probabilities import Outputs
from widemargin.training.callbacks import Callback, Measure, ProgressBar, TensorBoard
from widemargin.training.checkpoint import Checkpoint
from widemargin.training.fingerprint import describe
from widemargin.training.history import Row
from widemargin.training.optimizers import MakesOptimizer
from widemargin.training.schedules import Schedule
from widemargin.training.stopping import StopFailed

Precision: TypeAlias = Literal["bf16-mixed"] | None
Fabric: TypeAlias = Any
"""`lightning_fabric.Fabric`, which is imported when it is needed."""
Regularizer: TypeAlias = Callable[..., Tensor]
"""`regularizer(model, x, y)` → one number per sample, or a single number."""
STRATEGIES = ("auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Devices, processes and precision of a training, as Lightning Fabric names them.

    Args:
        accelerator: "auto", "cpu", "cuda" or "mps".
        count: how many devices, or a list of which.
        strategy: of several devices: "ddp", "ddp_spawn", "ddp_fork" or "ddp_notebook".
        precision: None for that of the weights, or "bf16-mixed".
        cuda_graph: on a GPU, record the passes of a step as a CUDA graph and replay it, where data are tensors and the
            loss allows it; `Fit.settings` says whether. False for a network whose Python code differs between steps.
        backward_memory: bytes of gradients that the split backward of margin losses may keep: 0 for two backward
            passes, None for no limit.
    """

    accelerator: str = "auto"
    count: int | str | Sequence[int] = 1
    strategy: str = "auto"
    precision: Precision = None
    cuda_graph: bool = True
    backward_memory: int | None = None

    @classmethod
    def of(cls, device: str | torch.device) -> Devices:
        """This one device."""
        device = torch.device(device)
        return cls(accelerator=device.type, count=1 if device.index is None else [device.index])

    def __post_init__(self) -> None:
        check_choice("accelerator", self.accelerator, ("auto", "cpu", "cuda", "gpu", "mps", "tpu"))
        check_choice("strategy", self.strategy, STRATEGIES)
        check_choice("precision", self.precision, (None, "bf16-mixed"))
        check_flag("cuda_graph", self.cuda_graph)
        if self.backward_memory is not None:
            check_count("backward_memory", self.backward_memory, least=0)


def regularizers_of(regularizers: Iterable[Regularizer]) -> tuple[Regularizer, ...]:
    """The regularizers as a tuple; raises unless they are several functions."""
    check_several("regularizers", regularizers, "(regularizers.Jacobian(),)")
    found = tuple(regularizers)
    for regularizer in found:
        check_callable("regularizers", regularizer, "regularizers.Jacobian()")
    return found


def fabric(devices: Devices) -> Fabric:
    """A Fabric of these settings, from `lightning_fabric` or `lightning.fabric`."""
    for name in ("lightning_fabric", "lightning.fabric"):  # on its own, or inside lightning
        try:
            kind = importlib.import_module(name).Fabric
        except ImportError:
            continue
        count = devices.count if isinstance(devices.count, (int, str)) else list(devices.count)
        with quiet():  # the import has just set the level of its logger
            return kind(
                accelerator=devices.accelerator,
                devices=count,
                strategy=devices.strategy,
                precision=devices.precision or "32-true",
            )
    raise not_installed("lightning_fabric", "fit")


@contextmanager
def quiet() -> Iterator[None]:
    """Fabric's loggers log nothing below a warning inside the `with` block."""
    loggers = [logging.getLogger(name) for name in ("lightning_fabric", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """The checked arguments of `fit`; `at` and `p` are those of the distances in the history."""

    model: nn.Module
    data: object
    loss: Loss
    epochs: int
    optimizer: MakesOptimizer
    schedule: Schedule
    regularizers: tuple[Regularizer, ...]
    batch_size: int
    seed: int
    validation: object
    callbacks: tuple[Callback, ...]
    gradient_clip: float | int | None
    read_as: Outputs
    devices: Devices
    checkpoint: Checkpoint | None
    measure: Measure
    stop_failed: StopFailed
    at: tuple[str, ...] | None
    p: float

    def describe(self) -> dict[str, str]:
        """The settings that decide about the result, in words; not where and how it is computed and shown."""
        apart = {"callbacks", "devices", "checkpoint"}
        values: dict[str, object] = {name: value for name, value in vars(self).items() if name not in apart}
        shown = (ProgressBar, TensorBoard, Measure, StopFailed)
        deciding = [callback for callback in self.callbacks if not isinstance(callback, shown)]
        # Other callbacks may hold anything, such as times: they are known by their types.
        values["callbacks"] = tuple(c if is_dataclass(c) else type(c) for c in deciding)
        values |= {"precision": self.devices.precision, "backward_memory": self.devices.backward_memory}
        return {name: describe(value) for name, value in values.items()}


class Outcome(NamedTuple):
    """The result of a process; `weights` in safetensors' format, or None where the caller's network was trained.

    A named tuple, since Fabric does not carry frozen dataclasses from process to process.
    """

    weights: bytes | None
    rows: list[Row]
    settings: dict[str, str]


@dataclass(kw_only=True)
class Position:
    """The position of a training: plain values, stored in every checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    objective: float = 0.0  # sums over the samples since the last row,
    seen: int = 0
    epoch_loss: float = 0.0  # and since the epoch began
    epoch_seen: int = 0
    had_gradient: bool = False  # whether a gradient of this epoch was not zero
    backward: dict[str, str] = field(default_factory=dict)  # the backward passes of margin losses, in words
    epoch_losses: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    stopped: bool = False  # whether a callback has ended the training
