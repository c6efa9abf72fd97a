"""`widemargin train`, from the command line to its files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import widemargin as wm
from cli.conftest import Run
from widemargin import losses, regularizers
from widemargin.training import SGD, Cosine, Devices

SMALL = ("--model", "toy-mlp", "--set", "hidden=(4,)", "--data", "toy", "--device", "cpu", "--epochs", "2")


def test_it_trains_what_the_library_trains(run: Run) -> None:
    answer = run(
        *("train", *SMALL, "--loss", "large-margin", "--gamma", "0.5", "--at", "input", "--at", "output", "--p", "1"),
        *("--jacobian", "0.1", "--weight-decay", "0.01", "--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.5"),
        *("--schedule", "cosine", "--batch-size", "50", "--count", "120", "--seed", "3", "--out", "there"),
    )
    assert answer.code == 0, answer.err
    assert answer.err == ""
    torch.manual_seed(3)
    model = wm.models.build("toy-mlp", hidden=(4,))
    data = wm.data.load("toy")
    expected = wm.fit(
        model,
        wm.data.subset(data.train, count=120, seed=3),
        loss=losses.large_margin(gamma=0.5, at=("input", "output"), p=1.0),
        regularizers=(regularizers.Jacobian(weight=0.1), regularizers.WeightDecay(weight=0.01)),
        optimizer=SGD(lr=0.1, momentum=0.5),
        schedule=Cosine(),
        epochs=2,
        batch_size=50,
        seed=3,
        validation=data.test,
        devices=Devices(accelerator="cpu"),
    )
    found = load_file("there/weights.safetensors")
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    assert json.loads(Path("there/history.json").read_text()) == list(expected.history.rows)

    measured = wm.measure(model, data, at=("input", "output"), p=1.0)
    summary = json.loads(Path("there/summary.json").read_text())
    assert summary["accuracy"] == measured.accuracy
    assert summary["distance"]["output"]["mean"] == measured.statistics["output"].mean
    assert summary["settings"]["loss"].startswith("MarginLoss(penalty=Hinge(gamma=0.5)")
    assert f"toy-mlp on toy, large-margin: 400 test samples, accuracy {100 * measured.accuracy:.2f} %" in answer.out
    written = sorted(path.name for path in Path("there").iterdir())
    assert written == [
        "checkpoint",
        "history.json",
        "margins.parquet",
        "page.html",
        "summary.json",
        "weights.safetensors",
    ]
    page = Path("there/page.html").read_text()
    assert "Solid lines: test samples" in page
    assert "toy-mlp on toy, large-margin" in page
    assert "120 samples to train on, 400 to test on; seed 3" in page


def test_the_default_loss_is_the_wide_margin_one(run: Run) -> None:
    answer = run("train", *SMALL, "--strength", "2", "--out", "there")
    assert answer.code == 0, answer.err
    torch.manual_seed(0)
    model = wm.models.build("toy-mlp", hidden=(4,))
    wm.fit(model, wm.data.load("toy"), loss=wm.WideMargin(strength=2.0), epochs=2, devices=Devices(accelerator="cpu"))
    found = load_file("there/weights.safetensors")
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    settings = json.loads(Path("there/summary.json").read_text())["settings"]
    assert settings["loss"].startswith("WideMargin(strength=2.0")


def test_the_same_command_again_goes_on_and_another_one_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("train", *SMALL, "--loss", "odn", "--count", "100")
    assert run(*command).code == 0
    before = Path("runs/train/weights.safetensors").read_bytes()

    def step(*_: object, **__: object) -> None:
        raise AssertionError("a finished training takes no step")

    monkeypatch.setattr("widemargin.training.loop.FitLoop.step", step)
    assert run(*command).code == 0
    assert Path("runs/train/weights.safetensors").read_bytes() == before
    answer = run(*command, "--r", "3")
    assert answer.code == 2
    assert "--out is 'runs/train', where a training with another setting was begun (loss)" in answer.err
    assert answer.out == ""


def test_its_weights_are_measured_by_the_other_command(run: Run) -> None:
    assert run("train", *SMALL, "--loss", "cross-entropy", "--lr", "0.1").code == 0
    trained = json.loads(Path("runs/train/summary.json").read_text())
    answer = run("measure", *SMALL[:-2], "--weights", "runs/train/weights.safetensors")
    assert answer.code == 0, answer.err
    assert json.loads(Path("runs/measure/summary.json").read_text())["distance"] == trained["distance"]
    assert trained["accuracy"] > 0.7


def test_a_training_that_dies_ends_with_its_sentence(run: Run) -> None:
    answer = run("train", *SMALL, "--loss", "odn", "--as-printed", "--optimizer", "sgd", "--lr", "1e30")
    assert answer.code == 1
    assert answer.err.startswith("Error: training stopped at step ")
    assert "try a smaller learning rate (now 1e+30) or stabilize='scale-free'" in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--loss", "odn", "--gamma", "1"), "--gamma is not for --loss odn, but for hinge, large-margin, odn-hinge"),
        (("--gamma", "1"), "--gamma is not for --loss wide-margin"),
        (("--loss", "large-margin", "--gamma", "-1"), "--gamma is -1.0"),
        (("--share", "2"), "--share is 2.0"),
        (("--loss", "odn", "--strength", "1"), "--strength is not for --loss odn, but for wide-margin"),
        (("--lr", "-1"), "--lr is -1"),
        (("--momentum", "0.9"), "--momentum is 0.9, which is for --optimizer sgd or rmsprop"),
        (("--tensorboard", "/dev/null"), "--tensorboard is '/dev/null'"),
        (("--p", "0.5"), "--p: p is 0.5"),
        (("--at", "inptu"), "--at: at has 'inptu', which is no module of"),
        (("--count", "9999"), "--count: count is 9999"),
        (("--classes", "many"), "--classes is 'many'"),
    ],
)
def test_mistakes_get_a_sentence_before_any_work(arguments: tuple[str, ...], sentence: str, run: Run) -> None:
    answer = run("train", *SMALL, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert not Path("runs").exists()


def test_without_the_report_there_is_no_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(*missing: str) -> Any:
        return lambda name, *rest: None if name in missing else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without("altair"))
    answer = run("train", *SMALL, "--loss", "soft-hinge")
    assert answer.code == 0, answer.err
    assert "no page.html, which needs more packages: pip install 'widemargin[report]'" in answer.err
    assert not Path("runs/train/page.html").exists()
    monkeypatch.setattr(importlib.util, "find_spec", without("lightning_fabric", "lightning"))
    answer = run("train", *SMALL)
    assert answer.code == 2
    assert "pip install 'widemargin[train]'" in answer.err


def test_help_fits_into_80_columns(run: Run) -> None:
    answer = run("train", "-h")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "  widemargin train --model nets:build" in answer.out
