"""The network that a command line names: settings, builders and weights files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from widemargin import models
from widemargin.cli.networks import load_weights, parse_settings, resolve

SMALL = {"inputs": 3, "hidden": (4,), "classes": 2}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, from which modules are imported and forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("size=8", 8),
        ("rate=0.5", 0.5),
        ("rate=-1e-3", -1e-3),
        ("flag=True", True),
        ("none=None", None),
        ("hidden=(64, 64)", (64, 64)),
        ("hidden=()", ()),
        ("norm=group", "group"),
        ("norm='group'", "group"),
        ("name=wrn-28-10", "wrn-28-10"),
        ("equation='a=b'", "a=b"),
        (" size = 8 ", 8),
        ("table={'a': [1]}", {"a": [1]}),
    ],
)
def test_a_setting_is_a_literal_or_a_word(pair: str, value: Any) -> None:
    assert list(parse_settings([pair]).values()) == [value]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["size"], "--set is 'size'"),
        (["=8"], "--set is '=8'"),
        (["a b=8"], "--set is 'a b=8'"),
        (["size="], "--set is 'size='"),
        (["hidden=(1,"], r"--set is 'hidden=\(1,'"),
        (["x=__import__('os').getcwd()"], "--set is .*, expected a value"),
        (["x=2**9"], "--set is 'x=2\\*\\*9'"),
        (["x=" + "(" * 500 + ")" * 500], "--set is .*, expected a value"),
        (["size=8", "size=9"], "--set has 'size' twice"),
    ],
)
def test_a_bad_setting_is_told(pairs: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_settings(pairs)


def test_a_name_with_settings_is_the_network_of_the_zoo_from_the_seed() -> None:
    network = resolve("toy-mlp", settings=SMALL, seed=3)
    torch.manual_seed(3)
    same(network, models.build("toy-mlp", **SMALL))


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("toy-mpl", {}, "--model: name is 'toy-mpl'"),
        ("toy-mlp", {"widht": 3}, "--model: 'widht'"),
        ("toy-mlp", {"hidden": (0,)}, "--model: hidden[0] is 0"),
        ("toy-mlp", {"inputs": 10**15}, "--model: toy-mlp can't be built with these settings: "),
        ("nets:build:more", {}, "--model is 'nets:build:more'"),
        ("../nets:build", {}, "--model is '../nets:build'"),
        (":build", {}, "--model is ':build'"),
    ],
)
def test_a_bad_name_or_setting_is_told(model: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as told:
        resolve(model, settings=settings)
    assert said in str(told.value)


def test_a_file_is_no_network(here: Path) -> None:
    (here / "net.pt").touch()
    with pytest.raises(ValueError, match=r"--model is 'net.pt', a file: give the network's builder"):
        resolve("net.pt", settings={})


def test_a_function_of_the_current_directory(here: Path) -> None:
    (here / "my_nets.py").write_text(
        "from torch import nn\n\ndef build(width, bias=True):\n    return nn.Linear(3, width, bias=bias)\n"
    )
    network = resolve("my_nets:build", settings={"width": 5, "bias": False})
    assert isinstance(network, nn.Linear)
    assert network.weight.shape == (5, 3)
    assert network.bias is None


def test_a_class_of_a_package(here: Path) -> None:
    (here / "my_package").mkdir()
    (here / "my_package" / "nets.py").write_text("from torch import nn\n\nclass Net(nn.Identity):\n    pass\n")
    assert type(resolve("my_package.nets:Net", settings={})).__name__ == "Net"


@pytest.mark.parametrize(
    ("code", "model", "settings", "kind", "said"),
    [
        ("", "absent_nets:build", {}, ImportError, "--model is 'absent_nets:build', but there is no module 'absent_"),
        ("", "some_nets.more:f", {}, ImportError, "--model is 'some_nets.more:f', but there is no module 'some"),
        ("", "some_nets.py:f", {}, ImportError, "installed; did you mean some_nets:f?"),
        ("def f(:", "some_nets:f", {}, ImportError, "some_nets.py, line 1 is no valid Python: invalid syntax"),
        ("import absent_x", "some_nets:f", {}, ImportError, "--model is 'some_nets:f', but some_nets can't be import"),
        ("", "some_nets:build", {}, ValueError, "--model is 'some_nets:build', but some_nets has no 'build'"),
        ("f = 3", "some_nets:f", {}, TypeError, "--model is 'some_nets:f', which is a int"),
        ("def f(): pass", "some_nets:f", {}, TypeError, "--model is 'some_nets:f', which returned a NoneType, expec"),
        ("def f(a, b=1): pass", "some_nets:f", {"c": 1}, TypeError, "--set does not fit --model some_nets:f, "),
        ("def f(): pass", "some_nets:f", {"c": 1}, TypeError, "--set does not fit --model some_nets:f, got an unex"),
        ("def f(): raise ValueError('no')", "some_nets:f", {}, ValueError, "--model: no"),
        ("from torch import nn\nf = nn.Identity()", "some_nets:f", {}, TypeError, "--model is 'some_nets:f', which"),
    ],
)
def test_a_bad_function_is_told(
    here: Path, code: str, model: str, settings: dict[str, Any], kind: type[Exception], said: str
) -> None:
    (here / "some_nets.py").write_text(code)
    with pytest.raises(kind) as told:
        resolve(model, settings=settings)
    assert said in str(told.value)


def test_a_bug_in_the_users_code_is_not_hidden(here: Path) -> None:
    (here / "wrong_nets.py").write_text("def f():\n    return unknown\n")
    with pytest.raises(NameError):
        resolve("wrong_nets:f", settings={})


def test_weights_are_loaded_exactly(tmp_path: Path) -> None:
    trained = models.build("toy-mlp", **SMALL)
    save_file(trained.state_dict(), tmp_path / "net.safetensors")
    same(resolve("toy-mlp", settings=SMALL, weights=tmp_path / "net.safetensors", seed=9), trained)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x))
        return y


def test_tied_weights_are_stored_once_and_loaded(tmp_path: Path) -> None:
    trained, network = Tied(), Tied()
    save_model(trained, str(tmp_path / "tied.safetensors"))
    load_weights(network, tmp_path / "tied.safetensors")
    same(network, trained)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fc1.weight": None}, "--weights lacks 'fc1.weight' of the network"),
        ({"fc1.weight": None, "output.bias": None}, "--weights lacks 'fc1.weight' and 1 more of the network"),
        ({"fc9.weight": torch.ones(1)}, "--weights has 'fc9.weight' that the network does not know"),
        (
            {"fc1.weight": None, "x": torch.ones(1)},
            "--weights lacks 'fc1.weight' of the network and has 'x' that the network does not know",
        ),
        (
            {"fc1.weight": torch.ones(5, 3)},
            "--weights has 'fc1.weight' of shape [5, 3], expected [4, 3]",
        ),
    ],
)
def test_weights_that_do_not_fit_are_told(tmp_path: Path, change: dict[str, Tensor | None], said: str) -> None:
    stored = models.build("toy-mlp", **SMALL).state_dict() | change
    save_file({name: tensor for name, tensor in stored.items() if tensor is not None}, tmp_path / "net.safetensors")
    with pytest.raises(ValueError) as told:
        resolve("toy-mlp", settings=SMALL, weights=tmp_path / "net.safetensors")
    assert said in str(told.value)
    assert said.startswith("--weights has 'fc1") or str(told.value) == said


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    torch.save(models.build("toy-mlp", **SMALL).state_dict(), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"--weights is '.*net\.pt', which is no safetensors file"):
        resolve("toy-mlp", settings=SMALL, weights=tmp_path / "net.pt")


@pytest.mark.parametrize("name", ["absent.safetensors", "."])
def test_weights_that_are_no_file_are_told_first(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"--weights is '.*', which is not a file"):
        resolve("no such network", settings={}, weights=tmp_path / name)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_are_told(value: float, tmp_path: Path) -> None:
    trained = resolve("toy-mlp", settings=SMALL)
    with torch.no_grad():
        trained.get_parameter("fc1.bias")[1] = value
    save_model(trained, str(tmp_path / "net.safetensors"))
    with pytest.raises(ValueError, match=r"--weights has 'fc1\.bias' with NaN or infinite numbers"):
        resolve("toy-mlp", settings=SMALL, weights=tmp_path / "net.safetensors")


def test_weights_of_another_dtype_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = {name: tensor.half() for name, tensor in models.build("toy-mlp", **SMALL).state_dict().items()}
    save_file(stored, tmp_path / "net.safetensors")
    resolve("toy-mlp", settings=SMALL, weights=tmp_path / "net.safetensors")
    assert "--weights has numbers of torch.float16, which become torch.float32" in capsys.readouterr().err


def same(network: nn.Module, other: nn.Module) -> None:
    mine, theirs = network.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name
