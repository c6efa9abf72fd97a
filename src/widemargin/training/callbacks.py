"""Callbacks of `fit`: what measures, logs, stops early or draws while a network is trained.

Override the hooks of `Callback` to write your own:

    class TimeLimit(Callback):
        def on_fit_start(self, state):
            self.end = time.monotonic() + 3600

        def on_epoch_end(self, state):
            return time.monotonic() > self.end  # True ends the training
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from widemargin import norms
from widemargin._io.optional import import_optional
from widemargin._io.progress import ProgressBars, is_shown
from widemargin.checks import check_choice, check_count, check_flag, check_path, check_place_names, check_type
from widemargin.losses.protocol import Loss
from widemargin.training.batches import Batch
from widemargin.training.history import Row


@dataclass(frozen=True, kw_only=True)
class FitState:
    """What a callback sees of a training.

    `epoch` and `step` count those that are finished; `steps` is the number of all steps, None for a stream. `objective`
    is that of the last batch and `epoch_losses` are the mean losses of the finished epochs. `rows` are those of the
    history so far; `measure()` adds rows now. Of several processes the one with `is_main` may write files.
    """

    model: nn.Module
    loss: Loss
    epochs: int
    epoch: int
    step: int
    steps: int | None
    lr: float
    objective: float | None
    epoch_losses: Sequence[float]
    had_gradient: bool
    batch: Batch | None
    rows: Sequence[Row]
    is_main: bool
    measure: Callable[[], None]

    @property
    def when(self) -> str:
        """The position in words."""
        return f"step {self.step} (epoch {self.epoch})"


class Callback:
    """Base class of callbacks: override the hooks that you need.

    A hook that returns True ends the training; with several processes it has to do so in all of them. A training that
    is resumed from a checkpoint calls `on_fit_start` again, and `state` is as it was.
    """

    def on_fit_start(self, state: FitState) -> bool | None:
        """Called before the first step."""

    def on_step_end(self, state: FitState) -> bool | None:
        """Called after every step of the optimizer."""

    def on_epoch_end(self, state: FitState) -> bool | None:
        """Called after every epoch, after `on_step_end` of its last step."""

    def on_fit_end(self, state: FitState) -> None:
        """Called at the end, also where the training raised an error."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the callback: tensors, numbers, texts, and lists and dicts of these."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, before `on_fit_start`."""


@dataclass(frozen=True, kw_only=True)
class Measure(Callback):
    """Adds rows to the history: before the first step, after every `every` epochs, and at the end; None: never.

    A row holds loss, accuracy and the mean distance at the places `at` in the norm `p`: by default those of the loss,
    else the input and 2. Of the training set at most `samples` samples are measured, always the same.
    """

    every: int | None = 1
    at: Sequence[str] | None = None
    p: float | int | None = None
    samples: int = 1000

    def __post_init__(self) -> None:
        check_count("samples", self.samples)
        if self.at is not None:
            check_place_names(self.at)
        if self.p is not None:
            norms.check_p(self.p)
        if self.every is not None:
            check_count("every", self.every)

    def on_fit_start(self, state: FitState) -> None:
        """Measure the network before the first step."""
        if self.every is not None and state.step == 0:
            state.measure()

    def on_epoch_end(self, state: FitState) -> None:
        """Measure the network, where it is time to."""
        if self.every is not None and (state.epoch % self.every == 0 or state.epoch == state.epochs):
            state.measure()


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(Callback):
    """Ends the training after `patience` measurements without a new best value of `monitor`, "split/name".

    It looks at the rows that `Measure` adds: "validation/loss", "train/accuracy", "validation/distance at input". NaN,
    as the distance of a network without slopes, counts as the worst value.
    """

    monitor: str = "validation/loss"
    patience: int = 3
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        check_count("patience", self.patience)
        _check_monitor(self.monitor, self.mode)

    def on_fit_start(self, state: FitState) -> None:
        """Raise if that part of the data is not measured."""
        split = self.monitor.split("/", 1)[0]
        if not any(row["split"] == split for row in state.rows):
            cure = "pass validation= to fit, and a Measure with every=1" if split == "validation" else "see Measure"
            raise ValueError(f"monitor is {self.monitor!r}, but no {split!r} data are measured: {cure}")

    def on_epoch_end(self, state: FitState) -> bool:
        """Whether the best value is `patience` measurements old; it is read from the history, so nothing is stored."""
        rows, best = _monitored(state, self.monitor, self.mode)
        return len(rows) - 1 - best >= self.patience


@dataclass(kw_only=True)
class BestWeights(Callback):
    """Gives the network the weights of its best measurement of `monitor`, "split/name", when the training ends.

    It looks at the rows that `Measure` adds, also before the first step; of equal values the first is the best.
    Checkpoints hold these weights, so that a resumed training ends as one that was not interrupted.
    """

    monitor: str = "validation/loss"
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        _check_monitor(self.monitor, self.mode)
        self._weights: dict[str, Tensor] | None = None

    def on_fit_start(self, state: FitState) -> None:
        """Keep the first weights, if they were measured."""
        if state.step == 0:
            self._weights = None
        self.on_epoch_end(state)

    def on_epoch_end(self, state: FitState) -> None:
        """Keep the weights, if their measurement is the best one."""
        rows, best = _monitored(state, self.monitor, self.mode)
        if best == len(rows) - 1 and rows[best]["step"] == state.step:
            weights = state.model.state_dict().items()
            self._weights = {name: value.detach().to("cpu", copy=True) for name, value in weights}

    def on_fit_end(self, state: FitState) -> None:
        """Give the network the best weights."""
        if self._weights is not None:
            state.model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """The best weights so far."""
        return {} if self._weights is None else {"weights": self._weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back the best weights."""
        self._weights = state.get("weights")


@dataclass
class TensorBoard(Callback):
    """Writes the rows of the history as curves "split/name" below `folder` (extra `tensorboard`)."""

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        check_path("folder", self.folder)

    _writer: Any = field(default=None, init=False, repr=False, compare=False)
    _written: int = field(default=0, init=False, repr=False, compare=False)

    def on_fit_start(self, state: FitState) -> None:
        """Open the files."""
        if not state.is_main:
            return
        board = import_optional("torch.utils.tensorboard", "TensorBoard")
        # A training that was killed may have written rows after its checkpoint, and lost rows before it that were still
        # in memory: a resumed one takes back all and writes them again.
        self._writer = board.SummaryWriter(os.fspath(self.folder), purge_step=0 if state.step else None)
        self._written = 0
        self.on_epoch_end(state)

    def on_epoch_end(self, state: FitState) -> None:
        """Write the new rows."""
        if self._writer is None:
            return
        for row in state.rows[self._written :]:
            for name, value in row.items():
                if name not in ("epoch", "step", "split"):
                    self._writer.add_scalar(f"{row['split']}/{name}", value, row["step"])
        self._written = len(state.rows)

    def on_fit_end(self, state: FitState) -> None:
        """Write the last rows, and close the files."""
        self.on_epoch_end(state)
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@dataclass(kw_only=True)
class ProgressBar(Callback):
    """Shows a bar with the time left on standard error; with `show=None` on a terminal only."""

    show: bool | None = None

    def __post_init__(self) -> None:
        if self.show is not None:
            check_flag("show", self.show)

    _bars: ProgressBars | None = field(default=None, init=False, repr=False, compare=False)

    def on_fit_start(self, state: FitState) -> None:
        """Show the bar."""
        if state.is_main and is_shown(self.show):
            self._bars = ProgressBars({"Training": state.steps}, progress=self.show)
            self._bars.update("Training", state.step)

    def on_step_end(self, state: FitState) -> None:
        """Move the bar."""
        if self._bars is not None:
            self._bars.update("Training", state.step)

    def on_fit_end(self, state: FitState) -> None:  # noqa: ARG002
        """Remove the bar."""
        if self._bars is not None:
            self._bars.close()
            self._bars = None


def states_of(callbacks: Sequence[Callback]) -> dict[str, dict[str, Any]]:
    """The states that a checkpoint keeps, by the types of the callbacks."""
    return {name: state for name, callback in _by_type(callbacks).items() if (state := callback.state_dict())}


def load_states(callbacks: Sequence[Callback], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Give every callback the state that `states_of` has of it."""
    for name, callback in _by_type(callbacks).items():
        if name in states:
            callback.load_state_dict(states[name])


def _by_type(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """The callbacks by the name of their type; equal names are numbered."""
    seen: Counter[str] = Counter()
    found = {}
    for callback in callbacks:
        name = type(callback).__name__
        seen[name] += 1
        found[f"{name} {seen[name]}"] = callback
    return found


def _check_monitor(monitor: str, mode: str) -> None:
    check_choice("mode", mode, ("min", "max"))
    check_type("monitor", monitor, str, "split/name, such as 'validation/loss'")
    if "/" not in monitor:
        raise ValueError(f"monitor is {monitor!r}, expected split/name, such as 'validation/loss'")


def _monitored(state: FitState, monitor: str, mode: str) -> tuple[list[Row], int]:
    """The rows with `monitor`, and the position of the best of them; NaN is the worst value."""
    split, name = monitor.split("/", 1)
    of_split = [row for row in state.rows if row["split"] == split]
    rows = [row for row in of_split if name in row]
    if not rows:
        known = ", ".join(sorted({f"{split}/{key}" for row in of_split for key in row} - {f"{split}/split"}))
        raise ValueError(f"monitor is {monitor!r}, which was not measured, expected one of {known or 'none'}")
    sign = 1 if mode == "min" else -1
    values = [sign * float(row[name]) for row in rows]
    values = [math.inf if math.isnan(value) else value for value in values]
    return rows, values.index(min(values))
