from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import zoo
from subprocesses import child_env
from widemargin import models
from widemargin.models.registry import places
from zoo import Gated, Unrolled, VisionTransformer

PRESENT = [name for name in models.names() if not models.describe(name).needs]
EVERYTHING = zoo.ZOO + zoo.TOKENS + zoo.RECURRENT + zoo.LOGITS


def answer(network: nn.Module, x: Tensor) -> Tensor:
    output = network(x)
    scores: Tensor = getattr(output, "logits", output)
    return scores


def test_the_names() -> None:
    assert models.names() == (
        "elsayed-toy",
        "elsayed-mnist-cnn",
        "wrn-28-10",
        "wrn-28-10-gn",
        "inception-v3",
        "odn-mnist-cnn",
        "odn-alexnet",
        "sokolic-mlp",
        "sokolic-cnn",
        "farhang-mlp",
        "farhang-cnn",
        "resnet-18",
        "vit",
        "toy-mlp",
    )


@pytest.mark.parametrize("name", PRESENT)
def test_a_description_agrees_with_the_network(name: str) -> None:
    told = models.describe(name)
    with torch.device("meta"):
        network = models.build(name)
        scores = network.eval()(torch.zeros(2, *told.input_shape))
    assert told.parameters == sum(weight.numel() for weight in network.parameters())
    assert scores.shape[0] == 2
    assert told.places[0] == "input"
    assert told.places[-1] == ("fc" if name == "inception-v3" else "output")  # torchvision names its own layers
    assert set(told.places[1:]) <= {key for key, _ in network.named_modules()}
    assert models.describe(name, **told.settings) == told


def test_settings_reach_the_network_and_the_description() -> None:
    told = models.describe("elsayed-mnist-cnn", size=8, widths=(3,), hidden=(), classes=4)
    assert told.input_shape == (1, 8, 8)
    assert told.parameters == 26 * 3 + (3 * 16 + 1) * 4
    assert told.places == ("input", "conv1", "relu1", "pool1", "flatten", "output")
    assert told.settings == {
        "in_channels": 1,
        "size": 8,
        "widths": (3,),
        "hidden": (),
        "classes": 4,
        "dropout": 0.0,
        "kernel": 5,
    }


def test_a_preset_is_no_setting() -> None:
    assert "norm" not in models.describe("wrn-28-10-gn").settings
    with pytest.raises(ValueError, match=r"'norm' .*wrn-28-10-gn.* depth, widen, "):
        models.build("wrn-28-10-gn", norm="batch")
    network = models.build("wrn-28-10-gn", depth=10, widen=1)
    assert any(isinstance(module, nn.GroupNorm) for module in network.modules())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def test_describing_draws_no_numbers() -> None:
    state = torch.get_rng_state()
    for name in PRESENT:
        models.describe(name)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("ask", [models.build, models.describe])
def test_an_unknown_name_gets_the_close_one(ask: Callable[..., object]) -> None:
    with pytest.raises(ValueError) as caught:
        ask("elsayed-mnist-cn")
    assert str(caught.value).startswith("name is 'elsayed-mnist-cn'")
    assert "'elsayed-mnist-cnn'?" in str(caught.value)
    assert all(repr(name) in str(caught.value) for name in models.names())
    with pytest.raises(ValueError, match="name is '§'"):
        ask("§")


@pytest.mark.parametrize("ask", [models.build, models.describe])
def test_an_unknown_setting_gets_the_settings_there_are(ask: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"'width' .*toy-mlp.* inputs, hidden, classes"):
        ask("toy-mlp", width=3)


def test_the_zoo_has_every_network() -> None:
    """A network that is added to the table must be added to tests/zoo.py as well."""
    small = {entry.name.split(",")[0] for entry in zoo.ZOO}
    wide = {"wrn-28-10": "wrn", "wrn-28-10-gn": "wrn", "resnet-18": "wrn", "vit": "vision transformer"}
    missing = {name for name in models.names() if wide.get(name, name) not in small}
    assert missing == {"inception-v3"}  # 27 million weights and 299×299 images: not small


@pytest.mark.parametrize("entry", EVERYTHING, ids=str)
def test_the_zoo_answers_its_classes_and_is_reproducible(entry: zoo.Entry) -> None:
    x = entry.inputs()
    first, second, other = (answer(entry.network(seed), x) for seed in (0, 0, 1))
    assert first.shape == (5, entry.classes)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("entry", EVERYTHING, ids=str)
def test_a_batch_is_its_samples_one_by_one(entry: zoo.Entry) -> None:
    network = entry.network(dtype=torch.float64)
    x = entry.inputs(dtype=torch.float64)
    singles = torch.cat([answer(network, sample[None]) for sample in x])
    torch.testing.assert_close(answer(network, x), singles, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in PRESENT if (models.describe(name).parameters or 0) < 2_000_000])
def test_manual_seed_decides_the_weights(name: str) -> None:
    torch.manual_seed(7)
    first = models.build(name).state_dict()
    torch.manual_seed(7)
    second = models.build(name).state_dict()
    other = models.build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("entry", [entry for entry in zoo.ZOO if entry.name != "vision transformer"], ids=str)
def test_every_place_runs_once_and_its_tensor_reaches_the_scores(entry: zoo.Entry) -> None:
    """A zero added at each place gets a gradient: the place lies on the way from the input to the scores."""
    network = entry.network(dtype=torch.float64)
    found = places(network, entry.input_shape)
    assert found[0] == "input"
    assert found[-1] == "output"
    assert entry.place in found
    runs: list[str] = []
    zeros: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[[nn.Module, object, Tensor], Tensor]:
        def add(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
            runs.append(name)
            zeros[name] = torch.zeros_like(output).requires_grad_()
            return output + zeros[name]

        return add

    for name in found[1:]:
        network.get_submodule(name).register_forward_hook(hook(name))
    x = entry.inputs(dtype=torch.float64).requires_grad_()
    scores = network(x)
    assert tuple(runs) == found[1:]
    for gradient in torch.autograd.grad(scores[:, 0].sum(), [x, *zeros.values()]):
        assert gradient.abs().sum() > 0


def test_the_table_of_the_docs_is_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods" / "networks.md").read_text()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.count("|") == 5
    ]
    rows = {row[0].strip("`"): row for row in cells if row[0].startswith("`")}
    assert tuple(rows) == models.names()
    for name in PRESENT:
        assert rows[name][3] == f"{models.describe(name).parameters:,}"


class Skipping(nn.Module):
    """A module that never runs, one that runs twice, and one that ends before the one that is called first."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.twice = nn.ReLU()
        self.outer = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.output = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.twice(self.outer(self.twice(x))))
        return scores


def test_only_modules_that_run_once_in_the_order_in_which_they_end() -> None:
    assert places(Skipping(), (2,)) == ("input", "outer.0", "outer.1", "outer", "output")


def test_a_tuple_or_a_repeated_cell_is_no_place() -> None:
    assert places(Gated(), (5, 4)) == ("input", "embed", "output")
    assert places(Unrolled(), (5, 4)) == ("input", "embed", "output")


def test_blocks_come_after_their_layers() -> None:
    found = places(VisionTransformer(), (1, 8, 8))
    assert found[:2] == ("input", "patches")
    assert found[-2:] == ("block", "output")


def test_the_network_is_left_as_it_was() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Linear(2, 2)).double()
    network[1].eval()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    places(network, (2,))
    assert [module.training for module in network.modules()] == [True, True, False, True, True]
    assert all(not module._forward_hooks for module in network.modules())
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())


def test_wrong_types_are_reported_without_the_shape_checker() -> None:
    """In the tests the shape checker raises first; without it, the functions themselves do."""
    program = """
from widemargin import models
for name, settings in [
    ("elsayed-mnist-cnn", {"widths": 32}), ("wrn-28-10", {"norm": "layer"}), ("odn-alexnet", {"dropout": 0.5}),
    ("sokolic-mlp", {"layers": 2.0}), ("farhang-mlp", {"sigma": "1"}), ("toy-mlp", {"hidden": (8, "8")}),
]:
    try:
        models.build(name, **settings)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=child_env())
    expected = [
        "TypeError widths is 32,",
        "ValueError norm is 'layer',",
        "TypeError dropout is 0.5,",
        "TypeError layers is 2.0,",
        "TypeError sigma is '1',",
        "TypeError hidden[1] is '8',",
    ]
    assert [line[: len(words)] for line, words in zip(done.stdout.splitlines(), expected, strict=True)] == expected
