"""`widemargin measure`, from the command line to its table and files."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cli.conftest import Run
from widemargin import data, margins, models
from widemargin.cli.console import number

AFFINE = ("--model", "toy-mlp", "--set", "hidden=()", "--data", "toy")
SMALL = ("--model", "toy-mlp", "--set", "hidden=(4,)", "--data", "toy")


def rows(out: str) -> dict[str, list[str]]:
    """The lines of the tables by their first word."""
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}


def columns(path: Path) -> dict[str, Tensor]:
    return {name: torch.tensor(values) for name, values in pq.read_table(path).to_pydict().items()}


def test_an_affine_network_has_the_distances_of_the_closed_form(run: Run) -> None:
    answer = run("measure", *AFFINE, "--seed", "5")
    assert answer.code == 0, answer.err
    torch.manual_seed(5)
    network = models.build("toy-mlp", hidden=())
    weight, bias = (value.double() for value in network.state_dict().values())
    test = data.load("toy").test
    f = test.x.double() @ weight.T + bias
    sign = 1 - 2 * test.y  # class 0 against class 1, or the other way
    output = sign * (f[:, 0] - f[:, 1])
    distance = output / (weight[0] - weight[1]).norm()

    found = columns(Path("runs/measure/margins.parquet"))
    assert list(found) == ["label", "prediction", "output margin", "distance at input"]
    assert torch.equal(found["label"], test.y)
    assert torch.equal(found["prediction"], f.argmax(dim=1))
    torch.testing.assert_close(found["output margin"].double(), output, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found["distance at input"].double(), distance, atol=1e-6, rtol=1e-5)

    accuracy = float((distance > 0).double().mean())
    assert f"toy-mlp on toy (test): 400 samples, accuracy {100 * accuracy:.2f} %" in answer.out
    shown = [distance.mean(), distance.std(correction=0), distance.mean() / distance.std(correction=0), distance.min()]
    assert rows(answer.out)["input"][:4] == [number(float(value)) for value in shown]
    assert f"{100 * (1 - accuracy):.1f} %" in answer.out
    assert "wrote runs/measure/margins.parquet" in answer.out
    assert "wrote runs/measure/summary.json" in answer.out


def test_every_option_reaches_the_measurement(run: Run, tmp_path: Path) -> None:
    network = models.build("elsayed-mnist-cnn", size=8, widths=(2, 3), hidden=(5,))
    save_file(network.state_dict(), tmp_path / "net.safetensors")
    answer = run(
        *("measure", "--model", "elsayed-mnist-cnn", "--set", "size=8", "--set", "widths=(2, 3)"),
        *("--set", "hidden=(5,)", "--weights", "net.safetensors", "--data", "digits", "--split", "train"),
        *("--at", "conv2", "--at", "input", "--p", "inf", "--classes", "all", "--read-as", "softmax"),
        *("--batch-size", "500", "--device", "cpu", "--out", "there"),
    )
    assert answer.code == 0, answer.err
    assert answer.err == ""
    train = data.load("digits").train
    expected = margins.measure(
        network, train, at=("conv2", "input"), p=float("inf"), classes="all", read_as="softmax", batch_size=500
    )
    found = columns(Path("there/margins.parquet"))
    assert torch.equal(found["label"], train.y)
    for place, values in expected.margins.items():
        torch.testing.assert_close(found[f"distance at {place}"], values, equal_nan=True)
    summary = json.loads(Path("there/summary.json").read_text())
    assert summary["settings"] == {
        "model": "elsayed-mnist-cnn",
        "set": ["size=8", "widths=(2, 3)", "hidden=(5,)"],
        "weights": "net.safetensors",
        "data": "digits",
        "split": "train",
        "batch_size": 500,
        "device": "cpu",
        "widemargin": summary["settings"]["widemargin"],
        "at": ["conv2", "input"],
        "p": "inf",  # JSON knows no infinity
        "classes": "all",
        "read_as": "softmax",
    }
    assert summary["samples"] == 1437
    assert summary["accuracy"] == expected.accuracy
    for place, statistics in expected.statistics.items():
        assert summary["distance"][place]["mean"] == pytest.approx(statistics.mean)
    assert "l_inf distance" in answer.out
    places = [line.split()[0] for line in answer.out.splitlines() if line.startswith((" conv2", " input"))]
    assert places == ["conv2", "input"]


def test_the_same_seed_measures_the_same_untrained_network(run: Run) -> None:
    first, again, other = (run("measure", *SMALL, "--seed", seed) for seed in ("1", "1", "2"))
    assert first.out == again.out != other.out
    assert first.err.startswith("Note: no --weights")
    assert json.loads(Path("runs/measure/summary.json").read_text())["settings"]["seed"] == 2


def test_the_hardest_samples_are_listed_smallest_first(run: Run) -> None:
    answer = run("measure", *SMALL, "--hardest", "3")
    found = columns(Path("runs/measure/margins.parquet"))
    order = found["distance at input"].argsort()[:3]
    listed = [line.split() for line in answer.out.split("Smallest l_2 distance at input")[1].splitlines()[4:7]]
    names = ["upper", "lower"]
    for words, index in zip(listed, order.tolist(), strict=True):
        label, prediction = int(found["label"][index]), int(found["prediction"][index])
        assert words == [
            *(str(index), str(label), names[label], "moon", str(prediction), names[prediction], "moon"),
            number(float(found["distance at input"][index])),
        ]


def test_statistics_of_each_class(run: Run) -> None:
    answer = run("measure", *SMALL, "--per-class", "--at", "input", "--at", "relu1")
    found = columns(Path("runs/measure/margins.parquet"))
    for place in ("input", "relu1"):
        text = answer.out.split(f"l_2 distance at {place}, class by class")[1]
        for label, name in enumerate(("0 upper moon", "1 lower moon")):
            line = next(line for line in text.splitlines() if line.strip().startswith(name))
            mine = found[f"distance at {place}"][found["label"] == label].double()
            assert line.split()[3:5] == [
                number(float(mine.nanmean())),
                number(float(margins.Distribution.of(mine).std)),
            ]


def test_samples_without_a_margin_are_counted(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "dead_nets.py").write_text(
        "import torch\n\n"
        "class Dead(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        live = (x[:, :1] > 0) * x\n"
        "        return torch.cat([live.sum(dim=1, keepdim=True), torch.zeros_like(live[:, :1])], dim=1)\n"
    )
    answer = run("measure", "--model", "dead_nets:Dead", "--data", "toy", "--hardest", "400")
    assert answer.code == 0
    assert "dead_nets:Dead" in answer.err
    dead = int((data.load("toy").test.x[:, 0] <= 0).sum())
    assert 0 < dead < 400
    assert rows(answer.out)["input"][-1] == str(dead)
    assert answer.out.count("–\n") + answer.out.count("– \n") == dead  # last in the list, without a number
    assert json.loads(Path("runs/measure/summary.json").read_text())["distance"]["input"]["invalid"] == dead


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "toy-mpl", "--data", "toy"), "--model: name is 'toy-mpl'"),
        (("--model", "no_nets:f", "--data", "toy"), "--model is 'no_nets:f'"),
        ((*SMALL, "--set", "width=3"), "--model: 'width'"),
        ((*SMALL, "--set", "width"), "--set is 'width'"),
        ((*SMALL, "--weights", "no.safetensors"), "--weights is 'no.safetensors'"),
        (("--model", "toy-mlp", "--data", "tyo"), "--data: name is 'tyo'"),
        (("--model", "toy-mlp", "--data", "mnist"), "--data: mnist has no root"),
        ((*SMALL, "--data-root", "no", "--data", "mnist"), "--data: root is 'no'"),
        ((*SMALL, "--at", "fc9"), "--at: at has 'fc9'"),
        ((*SMALL, "--at", "fc1", "--at", "fc1"), "--at: at has 'fc1' twice"),
        ((*SMALL, "--p", "0.5"), "--p: p is 0.5"),
        ((*SMALL, "--p", "nan"), "--p: p is nan"),
        ((*SMALL, "--classes", "0"), "--classes is '0'"),
        ((*SMALL, "--classes", "some"), "--classes is 'some'"),
        ((*SMALL, "--classes", "2"), "classes is 2"),
        ((*SMALL, "--device", "nothing"), "--device is 'nothing'"),
        ((*SMALL, "--device", "meta"), "--device is 'meta'"),
        ((*SMALL, "--out", "a-file"), "--out is 'a-file'"),
        ((*SMALL, "--out", "a-file/below"), "--out: "),
        (
            ("--model", "toy-mlp", "--data", "digits"),
            "--model toy-mlp can't take the inputs of --data digits",
        ),
        (
            (
                "--model",
                "farhang-mlp",
                "--set",
                "inputs=64",
                "--set",
                "width=3",
                "--set",
                "outputs=1",
                "--data",
                "digits",
            ),
            "y has dtype torch.int64",
        ),
    ],
)
def test_what_a_user_gets_wrong_is_one_sentence(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "a-file").touch()
    answer = run("measure", *arguments)
    assert answer.code == 2
    assert answer.exception is None
    assert answer.out == ""
    told = [line for line in answer.err.splitlines() if not line.startswith("Note: ")]
    assert len(told) == 1
    assert told[0].startswith(f"Error: {said}")
    assert not Path("runs/measure/summary.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--p", "two"),
        ("--split", "half"),
        ("--batch-size", "0"),
        ("--hardest", "-1"),
        ("--read-as", "odds"),
        ("--no-such-option",),
    ],
)
def test_what_the_parser_refuses_names_the_option(run: Run, arguments: tuple[str, ...]) -> None:
    answer = run("measure", *SMALL, *arguments)
    assert answer.code == 2
    assert arguments[0] in answer.err
    assert "Traceback" not in answer.err


def test_a_missing_extra_is_told_before_the_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    monkeypatch.setattr(margins, "measure", lambda *_, **__: pytest.fail("measured in vain"))
    answer = run("measure", *SMALL)
    assert answer.code == 2
    assert "pyarrow" in answer.err


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (1, "--model full_nets:Full"),
        (2, "--batch-size is 256"),
    ],
)
def test_a_full_memory_is_told(run: Run, tmp_path: Path, samples: int, said: str) -> None:
    (tmp_path / "full_nets.py").write_text(
        "import torch\n\n"
        "class Full(torch.nn.Module):\n"
        "    def __init__(self, least):\n"
        "        super().__init__()\n"
        "        self.least = least\n\n"
        "    def forward(self, x):\n"
        "        if len(x) >= self.least:\n"
        "            raise torch.OutOfMemoryError('CUDA out of memory')\n"
        "        return x\n"
    )
    answer = run("measure", "--model", "full_nets:Full", "--set", f"least={samples}", "--data", "toy")
    sys.modules.pop("full_nets")
    assert answer.code == 2
    assert answer.err.splitlines()[-1].startswith(f"Error: {said}")


def test_the_data_root_may_stand_before_and_after_the_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    roots: list[str | None] = []
    load = data.load

    def remember(name: str, root: Any = None, **_: Any) -> Any:
        roots.append(None if root is None else str(root))
        return load(name)

    monkeypatch.setattr(data, "load", remember)
    run("measure", *SMALL)
    run("--data-root", "a", "measure", *SMALL)
    run("measure", *SMALL, "--data-root", "b")
    run("--data-root", "a", "measure", *SMALL, "--data-root", "b")
    assert roots == [None, "a", "b", "b"]


HOSTILE = "[red]a[/red] :smile:"


def test_names_are_printed_as_they_are(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_nets.py").write_text(
        "from collections import OrderedDict\n"
        "from torch import nn\n\n"
        "def build():\n"
        f"    return nn.Sequential(OrderedDict({{{HOSTILE!r}: nn.Linear(2, 3), '[/]\\x1b[31m': nn.Linear(3, 2)}}))\n"
    )
    toy = data.load("toy")
    odd = data.Data("toy", toy.train, toy.test, ("[bold]x[/bold]", "[/]\n\x1b[2Jy"), None)
    monkeypatch.setattr(data, "load", lambda *_, **__: odd)
    answer = run(
        *("measure", "--model", "odd_nets:build", "--data", "[b]toy", "--at", HOSTILE, "--at", "[/]\x1b[31m"),
        *("--per-class", "--hardest", "400", "--out", "[i]out[/i]"),
    )
    assert answer.code == 0, answer.err
    for shown in (
        "on [b]toy (test)",
        f"distance at {HOSTILE}",
        "[/]\\x1b[31m",
        "0 [bold]x[/bold]",
        "1 [/]\\n\\x1b[2Jy",
    ):
        assert shown in answer.out
    assert "wrote [i]out[/i]/margins.parquet" in answer.out
    assert "\x1b" not in answer.out
    assert Path("[i]out[/i]/summary.json").exists()


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "a\nb\x1b[2J", ":smile:x"])
def test_errors_are_printed_as_they_are(run: Run, name: str) -> None:
    answer = run("measure", "--model", "toy-mlp", "--data", name)
    assert answer.code == 2
    assert answer.err.startswith(f"Error: --data: name is {name!r}")
    assert len(answer.err.splitlines()) == 1


def test_brackets_hold_an_affine_network_from_both_sides(run: Run) -> None:
    answer = run("measure", *AFFINE, "--seed", "5", "--bracket", "30", "--out", "out")
    assert answer.code == 0, answer.err
    assert "of 30 samples bracketed in l_2" in answer.out
    table = pq.read_table("out/bracket.parquet").to_pydict()
    assert "misclassified" in table["lower by"]
    assert set(table["lower by"]) <= {"linear relaxation", "Lipschitz", "misclassified"}
    found = {name: torch.tensor(table[name]) for name in ("lower", "upper", "linearized")}
    distances = columns(Path("out/margins.parquet"))["distance at input"][:30].double()
    right = distances > 0
    assert torch.allclose(found["lower"][right].double(), distances[right], rtol=1e-4)
    assert torch.allclose(found["upper"][right].double(), distances[right], rtol=1e-4)
    assert (found["upper"][~right] == 0).all()
    assert 'id="chart-bracket"' in Path("out/page.html").read_text()
    answer = run("measure", *AFFINE, "--bracket", "-1")
    assert answer.code == 2
