"""Checkpoints: any state, whole or not at all, of this training or of none."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

import widemargin as wm
from training.cases import CPU, network, samples
from training.test_fit import weights
from widemargin import losses, regularizers
from widemargin._io.tensors import read_tensors
from widemargin.training import SGD, AdamW, Callback, Checkpoint, Cosine, RMSprop, checkpoint
from widemargin.training.callbacks import FitState

SETTINGS = {"seed": "0", "lr": "0.1"}


def test_any_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tied = torch.arange(6.0).reshape(2, 3)
    state = {
        "model": {"a/b": tied, "a": {"b": tied}, "transposed": tied.t(), "one": torch.tensor(3), "none": torch.ones(0)},
        "state": {0: {"step": torch.tensor(2.0), "exp": (torch.ones(2, dtype=torch.bfloat16), None)}, 1: {}},
        "groups": [{"betas": (0.9, 0.999), "foreach": None, "lr": 0.1 + 0.2, "nesterov": False, "params": [0, 1]}],
        "special": [math.inf, 1e-323, -0.0, 2**80, "text\n", {"dict": 1, "tensor": 2}, (), []],
    }
    checkpoint.save(tmp_path, state, SETTINGS)
    assert same(checkpoint.load(tmp_path, SETTINGS), state)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "NAdam", "RMSprop", "Rprop", "ASGD"])
def test_torchs_optimizers_go_on_from_their_state(kind: str, tmp_path: Path) -> None:
    def steps(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            parameter.pow(4).sum().backward()
            optimizer.step()

    def fresh() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
        settings = {"momentum": 0.9} if kind == "SGD" else {}
        return parameter, getattr(torch.optim, kind)([parameter], lr=0.01, **settings)

    unbroken, optimizer = fresh()
    steps(unbroken, optimizer, 6)
    first, optimizer = fresh()
    steps(first, optimizer, 3)
    checkpoint.save(tmp_path, {"weights": first, "optimizer": optimizer.state_dict()}, SETTINGS)
    state = checkpoint.load(tmp_path, SETTINGS)
    assert state is not None
    second, optimizer = fresh()
    second.data = state["weights"]
    optimizer.load_state_dict(state["optimizer"])
    steps(second, optimizer, 3)
    assert torch.equal(second, unbroken)


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A random transform of its own, from torch's global generator."""

    of = samples()

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.of.x[i] + torch.randn(6), self.of.y[i]


class Stop(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize(
    ("data", "optimizer"),
    [
        ("tensors", AdamW(lr=0.01)),
        ("noisy dataset", RMSprop(momentum=0.9)),
        ("loader", SGD(lr=0.1, momentum=0.9)),
        ("loader with a generator", SGD(lr=0.1)),
    ],
)
def test_a_training_goes_on_in_the_middle_of_an_epoch(data: str, optimizer: Any, tmp_path: Path, untyped: None) -> None:
    """Stopped while it runs the 9th of 12 steps: the last checkpoint stands at step 7, the second of an epoch."""
    made: dict[str, Any] = {
        "tensors": samples,
        "noisy dataset": Noisy,
        "loader": lambda: DataLoader(Noisy(), batch_size=20, shuffle=True),
        "loader with a generator": lambda: DataLoader(
            Noisy(), batch_size=20, shuffle=True, generator=torch.Generator().manual_seed(5)
        ),
    }

    def run(stop: int | None, folder: Path | None) -> wm.training.Fit:
        calls: Iterator[int] = iter(range(1000))
        stops = [stop]

        def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if model.training and next(calls) in stops:
                raise Stop
            return losses.CrossEntropy()(model, x, y)

        return wm.fit(
            network(dropout=0.3),
            made[data](),
            loss=loss,
            regularizers=(regularizers.Jacobian(weight=0.1),),
            optimizer=optimizer,
            schedule=Cosine(),
            epochs=4,
            batch_size=20,
            validation=samples(9, seed=1),
            checkpoint=None if folder is None else Checkpoint(folder, every=7),
            devices=CPU,
        )

    unbroken = run(None, None)
    with pytest.raises(Stop):
        run(8, tmp_path)
    resumed = run(None, tmp_path)
    assert torch.equal(weights(resumed.model), weights(unbroken.model))
    assert resumed.history == unbroken.history
    again = run(0, tmp_path)  # finished: no step is taken
    assert torch.equal(weights(again.model), weights(unbroken.model))
    assert again.history == unbroken.history


def fitted(folder: Path, **change: Any) -> wm.training.Fit:
    settings: dict[str, Any] = {
        "model": network(),
        "data": samples(),
        "loss": losses.large_margin(),
        "optimizer": SGD(lr=0.1),
        "epochs": 1,
        "batch_size": 20,
        "checkpoint": folder,
        "devices": CPU,
    }
    return wm.fit(**(settings | change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optimizer": SGD(lr=0.2)}, "optimizer SGD(lr=0.1, .*but optimizer is SGD(lr=0.2"),
        ({"seed": 1}, "seed 0, but seed is 1"),
        ({"epochs": 2}, "epochs 1, but epochs is 2"),
        ({"loss": losses.large_margin(gamma=2.0)}, "loss MarginLoss.*gamma=1.0.*, but loss is .*gamma=2.0"),
        ({"data": samples(seed=9)}, "data .*, but data is Samples"),
        ({"model": nn.Linear(6, 3).double()}, "model Sequential .*, but model is Linear"),
        ({"regularizers": (regularizers.WeightDecay(weight=1e-3),)}, r"regularizers \(\), but regularizers is"),
        (
            {"model": nn.Sequential(*list(network().children())[:3], nn.Linear(8, 3).double())},
            "initial weights .*, or seed the network",
        ),
        ({"validation": samples(4)}, "validation None, but validation is Samples"),
    ],
)
def test_a_checkpoint_of_other_settings_is_one_sentence(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    fitted(tmp_path)
    model = change.get("model", network())
    before = weights(model).clone()
    named = named.replace("SGD(", r"SGD\(")
    with pytest.raises(ValueError, match=f"holds a training with {named}.*or remove this one"):
        fitted(tmp_path, **(change | {"model": model}))
    assert torch.equal(weights(model), before)


def test_files_that_are_no_checkpoints_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / checkpoint.NAME).write_bytes(b"not this")
    with pytest.raises(ValueError, match=r"checkpoint is .*checkpoint\.safetensors"):
        fitted(tmp_path)
    save_file({"w": torch.ones(1)}, tmp_path / checkpoint.NAME)
    with pytest.raises(ValueError, match=r"checkpoint is .*checkpoint\.safetensors"):
        fitted(tmp_path)
    with pytest.raises(NotADirectoryError, match="which is a file, expected a folder"):
        fitted(tmp_path / checkpoint.NAME)


def test_what_can_not_be_stored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="/optimizer/0 is a function, which a checkpoint can't hold"):
        checkpoint.save(tmp_path, {"optimizer": [fitted]}, SETTINGS)
    with pytest.raises(TypeError, match="/optimizer has keys that are neither text nor integers"):
        checkpoint.save(tmp_path, {"optimizer": {(1, 2): 3}}, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_training_are_swept(tmp_path: Path) -> None:
    (tmp_path / f".{checkpoint.NAME}.x1y2").write_bytes(b"half")
    (tmp_path / "mine.txt").write_text("kept")
    fitted(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [checkpoint.NAME, "mine.txt"]


class At(Callback):
    """Does something once, after a step."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        self.step, self.act = step, act

    def on_step_end(self, state: FitState) -> None:
        if state.step == self.step:
            self.act()


def test_a_folder_holds_one_training_at_a_time(tmp_path: Path) -> None:
    other = At(1, lambda: fitted(tmp_path))
    with pytest.raises(BlockingIOError, match=rf"checkpoint is .*process {os.getpid()} on"):
        fitted(tmp_path, callbacks=[other])
    fitted(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]


def test_a_damaged_checkpoint_is_an_error_and_never_other_weights(tmp_path: Path) -> None:
    fitted(tmp_path)
    path = tmp_path / checkpoint.NAME
    content, settings = path.read_bytes(), begun(tmp_path)
    wanted = checkpoint.load(tmp_path, settings)
    drawn = random.Random(0)
    for _ in range(200):
        bit = drawn.randrange(8 * len(content))
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            found = checkpoint.load(tmp_path, settings)
        except ValueError as error:
            said = str(error)
            assert said.startswith("checkpoint is ")
        else:
            assert same(found, wanted), bit


def test_a_checkpoint_is_written_by_time_as_well(tmp_path: Path) -> None:
    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        fitted(tmp_path, callbacks=[At(3, stop)], checkpoint=Checkpoint(tmp_path, seconds=1e-9), epochs=2)
    assert step_of(tmp_path) == 2
    shutil.rmtree(tmp_path)
    with pytest.raises(Stop):
        fitted(tmp_path, callbacks=[At(3, stop)], checkpoint=Checkpoint(tmp_path, seconds=1e9), epochs=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["SIGINT", "SIGTERM"]
)
def test_an_interrupted_training_goes_on_where_it_was(
    number: signal.Signals, raised: type[BaseException], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    options: dict[str, Any] = {"model": network(dropout=0.3), "epochs": 2}
    with pytest.raises(raised):
        fitted(tmp_path, callbacks=[At(2, lambda: signal.raise_signal(number))], **options)
    assert signal.getsignal(number) is before
    assert f"the same command goes on from step 2 (checkpoint in {tmp_path})" in capsys.readouterr().err
    assert step_of(tmp_path) == 2
    options |= {"callbacks": [At(99, list)]}
    unbroken = fitted(tmp_path / "other", **options | {"model": network(dropout=0.3)})
    resumed = fitted(tmp_path, **options | {"model": network(dropout=0.3)})
    assert torch.equal(weights(resumed.model), weights(unbroken.model))
    assert resumed.history == unbroken.history


def test_a_signal_that_is_handled_elsewhere_ends_nothing(tmp_path: Path) -> None:
    arrived: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: arrived.append(number))
    try:
        fitted(tmp_path, callbacks=[At(2, lambda: signal.raise_signal(signal.SIGTERM))])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert arrived == [signal.SIGTERM]
    assert step_of(tmp_path) == 3


def begun(folder: Path) -> dict[str, str]:
    """The settings of the training in `folder`."""
    settings: dict[str, str] = json.loads(read_tensors(folder / checkpoint.NAME)[1]["settings"])
    return settings


def step_of(folder: Path) -> int:
    """The step that the checkpoint in `folder` stands at."""
    state = checkpoint.load(folder, begun(folder))
    assert state is not None
    return int(state["at"]["step"])
