"""Hooks of callbacks, and the callbacks that `fit` brings along."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import widemargin as wm
from training.cases import CPU, network, samples
from training.test_fit import weights
from widemargin import losses
from widemargin.training import SGD, Callback, Checkpoint, EarlyStopping, FitState, Measure, ProgressBar, TensorBoard

SETTINGS: dict[str, Any] = {"loss": losses.CrossEntropy(), "epochs": 2, "batch_size": 20, "devices": CPU}


class Noted(Callback):
    """Notes its calls, and ends the training after `last` steps or epochs."""

    def __init__(self, hook: str = "", last: int = -1) -> None:
        self.hook, self.last = hook, last
        self.calls: list[tuple[str, int, int]] = []

    def note(self, hook: str, state: FitState) -> bool:
        self.calls.append((hook, state.epoch, state.step))
        return hook == self.hook and self.last in (state.epoch if hook == "epoch" else state.step,)

    def on_fit_start(self, state: FitState) -> bool:
        return self.note("start", state)

    def on_step_end(self, state: FitState) -> bool:
        return self.note("step", state)

    def on_epoch_end(self, state: FitState) -> bool:
        return self.note("epoch", state)

    def on_fit_end(self, state: FitState) -> None:
        self.note("end", state)


def test_every_hook_is_called_in_order() -> None:
    noted = Noted()
    wm.fit(network(), samples(), callbacks=[noted], **SETTINGS)
    first = [("step", 0, 1), ("step", 0, 2), ("step", 0, 3), ("epoch", 1, 3)]
    second = [("step", 1, 4), ("step", 1, 5), ("step", 1, 6), ("epoch", 2, 6)]
    assert noted.calls == [("start", 0, 0), *first, *second, ("end", 2, 6)]


def test_the_state_is_that_of_the_training() -> None:
    seen: list[FitState] = []

    class Seen(Callback):
        def on_epoch_end(self, state: FitState) -> None:
            seen.append(state)

    model = network()
    result = wm.fit(model, samples(), callbacks=[Seen()], optimizer=SGD(lr=0.1), **SETTINGS)
    state = seen[-1]
    assert state.model is model
    assert (state.epochs, state.epoch, state.step, state.steps, state.lr, state.is_main) == (2, 2, 6, 6, 0.1, True)
    assert tuple(state.rows) == result.history.rows
    assert len(state.epoch_losses) == 2
    assert result.history.series("objective")[-1][1] == pytest.approx(state.epoch_losses[-1])


@pytest.mark.parametrize(("hook", "last", "steps"), [("start", 0, 0), ("step", 4, 4), ("epoch", 1, 3)])
def test_a_hook_that_returns_true_ends_the_training(hook: str, last: int, steps: int, tmp_path: Path) -> None:
    noted = Noted(hook, last)
    first = wm.fit(network(), samples(), callbacks=[noted], checkpoint=tmp_path, **SETTINGS)
    assert noted.calls[-1][::2] == ("end", steps)
    again = Noted(hook, last)
    second = wm.fit(network(), samples(), callbacks=[again], checkpoint=tmp_path, **SETTINGS)  # it stays ended
    assert [call[0] for call in again.calls] == ["start", "end"]
    assert torch.equal(weights(first.model), weights(second.model))


@pytest.mark.parametrize(
    ("hook", "last", "measured"), [("step", 4, [0, 3, 4]), ("epoch", 1, [0, 3]), ("start", 0, [0])]
)
def test_a_training_that_was_ended_is_measured_at_its_end(hook: str, last: int, measured: list[int]) -> None:
    result = wm.fit(network(), samples(), callbacks=[Noted(hook, last)], **SETTINGS)
    assert [row["step"] for row in result.history.rows] == measured
    silent = wm.fit(network(), samples(), callbacks=[Noted(hook, last), Measure(every=None)], **SETTINGS)
    assert not silent.history.rows


def test_the_end_is_called_after_an_error() -> None:
    class Broken(Callback):
        def on_step_end(self, state: FitState) -> None:
            raise OSError("disk full")

    noted = Noted()
    with pytest.raises(OSError, match="disk full"):
        wm.fit(network(), samples(), callbacks=[noted, Broken()], **SETTINGS)
    assert noted.calls[-1] == ("end", 0, 1)


def test_a_callback_may_measure_at_any_step() -> None:
    class Often(Callback):
        def on_step_end(self, state: FitState) -> None:
            state.measure()

    measured = wm.fit(network(), samples(), callbacks=[Often(), Measure(every=2)], **SETTINGS)
    assert [row["step"] for row in measured.history.rows] == [0, 1, 2, 3, 4, 5, 6, 6]
    plain = wm.fit(network(), samples(), **SETTINGS)
    assert torch.equal(weights(measured.model), weights(plain.model))


@pytest.mark.parametrize(("rate", "mode", "epochs"), [(0.0, "min", 3), (0.1, "min", 8), (0.1, "max", 3)])
def test_early_stopping_waits_for_a_better_value(rate: float, mode: Any, epochs: int) -> None:
    """With lr 0 the loss stays the same; with 0.1 it falls in every epoch."""
    stopping = EarlyStopping(monitor="validation/loss", patience=3, mode=mode)
    settings = {**SETTINGS, "epochs": 8, "optimizer": SGD(lr=rate), "validation": samples()}
    result = wm.fit(network(), samples(), callbacks=[stopping], **settings)
    assert result.history.last()["epoch"] == epochs


def test_nan_is_the_worst_value_of_early_stopping() -> None:
    """The distance of a network with equal scores is NaN; it grows afterwards."""
    model = network()
    nn.init.zeros_(model.get_parameter("3.weight"))
    stopping = EarlyStopping(monitor="train/distance at input", patience=2, mode="max")
    result = wm.fit(model, samples(), callbacks=[stopping], **{**SETTINGS, "epochs": 6, "optimizer": SGD(lr=0.05)})
    values = [float(row["distance at input"]) for row in result.history.rows]
    assert math.isnan(values[0])
    assert values[1:] == sorted(set(values[1:]))
    assert result.history.last()["epoch"] == 6


@pytest.mark.parametrize(
    ("monitor", "callbacks"),
    [("validation/loss", []), ("train/lss", []), ("train/loss", [Measure(every=None)])],
)
def test_early_stopping_needs_a_measured_value(monitor: str, callbacks: list[Callback]) -> None:
    noted = Noted()
    with pytest.raises(ValueError, match=f"monitor is '{monitor}'"):
        wm.fit(network(), samples(), callbacks=[EarlyStopping(monitor=monitor), noted, *callbacks], **SETTINGS)
    if monitor != "train/lss":
        assert not noted.calls  # before the first step


def test_bad_values_of_early_stopping_are_named(untyped: None) -> None:
    with pytest.raises(ValueError, match="patience is 0"):
        EarlyStopping(patience=0)
    with pytest.raises(ValueError, match="mode is 'low'"):
        EarlyStopping(mode="low")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="monitor is 'loss'"):
        EarlyStopping(monitor="loss")


class Writer:
    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.points, self.closed = folder, dict[tuple[str, int], float](), False
        made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.points[name, step] = value

    def close(self) -> None:
        self.closed = True


made: list[Writer] = []


def test_tensorboard_has_a_point_for_every_number_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(tmp_path)
    result = wm.fit(network(), samples(), validation=samples(9), callbacks=[board], **SETTINGS)
    (writer,) = made
    assert (writer.folder, writer.closed) == (str(tmp_path), True)
    expected = {
        (f"{row['split']}/{name}", row["step"]): value
        for row in result.history.rows
        for name, value in row.items()
        if name not in ("split", "step", "epoch")
    }
    assert writer.points == expected
    assert ("validation/distance at input", 6) in expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_resumed_training_has_each_point_once_in_tensorboard(tmp_path: Path) -> None:
    """It is killed after its last epoch, with the checkpoint two epochs before, and after the files were written."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    class Killed(Exception):  # noqa: N818
        pass

    class Kill(Callback):
        def __init__(self, at: int) -> None:
            self.at = at

        def on_step_end(self, state: FitState) -> None:
            if state.step == self.at:
                raise Killed

    def run(at: int) -> wm.training.Fit:
        callbacks = [TensorBoard(tmp_path / "board"), Kill(at)]
        settings: dict[str, Any] = {**SETTINGS, "epochs": 4, "checkpoint": Checkpoint(tmp_path / "kept", every=4)}
        return wm.fit(network(), samples(), callbacks=callbacks, **settings)

    with pytest.raises(Killed):
        run(11)
    ended = run(-1)
    read = accumulator.EventAccumulator(str(tmp_path / "board"), purge_orphaned_data=True)
    read.Reload()
    points = [event.step for event in read.Scalars("train/accuracy")]
    assert points == sorted(set(points)) == [row["step"] for row in ended.history.rows]


def test_tensorboard_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"widemargin\[tensorboard\]"):
        wm.fit(network(), samples(), callbacks=[TensorBoard(tmp_path)], **SETTINGS)


def test_a_bar_on_a_terminal_and_silence_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wm.fit(network(), samples(), **SETTINGS)
    assert capsys.readouterr() == ("", "")
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    wm.fit(network(), samples(), callbacks=[ProgressBar(show=True)], **SETTINGS)
    assert "Training" in terminal.getvalue()
