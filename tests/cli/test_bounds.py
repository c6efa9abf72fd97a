"""`widemargin bounds`, from the command line to its tables and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cli.conftest import Run
from widemargin import bounds, data, margins, models
from widemargin.cli.bounds import parse_covering
from widemargin.cli.console import number

SMALL = ("--model", "toy-mlp", "--set", "hidden=(4,)", "--data", "toy", "--samples", "60")


def test_the_values_are_those_of_the_library(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = models.build("farhang-mlp", inputs=64, width=8, depth=2)
    save_file(network.state_dict(), tmp_path / "net.safetensors")
    answer = run(
        *("bounds", "--model", "farhang-mlp", "--set", "inputs=64", "--set", "width=8", "--set", "depth=2"),
        *("--weights", "net.safetensors", "--data", "digits", "--split", "test", "--samples", "360", "--margin", "0.5"),
        *("--r", "2", "--theta", "0.5", "--delta", "0.1", "--covering", "mixture:2,3", "--cushions", "squared"),
        *("--log", "proof", "--probes", "3", "--seed", "7", "--biases", "refuse", "--device", "cpu", "--out", "there"),
    )
    assert (answer.code, answer.err) == (0, "")
    part = data.load("digits").test
    x, y = part.x, part.y
    odn = bounds.odn(
        *(network, x, y),
        r=2.0,
        theta=0.5,
        delta=0.1,
        cushion_form="squared",
        log_form="proof",
        probes=3,
        seed=7,
    )
    margin = bounds.input_margin(network, x, y, seed=7)
    cover = bounds.GaussianMixture(components=2, rank=3)
    expected: dict[str, bounds.Bound] = {
        "Bartlett": bounds.spectral(network, x, y, margin=0.5),
        "Neyshabur": bounds.neyshabur(network, x),
        "odn": odn,
        "robustness": bounds.robustness(margin.spectral, x, classes=10, covering=cover, delta=0.1),
    }
    written = json.loads((tmp_path / "there" / "bounds.json").read_text())
    assert list(written["bounds"]) == [*expected, "robustness, estimated"]
    lines = answer.out.splitlines()
    for name, bound in expected.items():
        stored = written["bounds"][name]
        assert stored["value"] == (pytest.approx(bound.value, rel=1e-5) if bound.value < float("inf") else None)
        assert stored["vacuous"] is bound.vacuous
        assert list(stored["terms"]) == list(bound.terms)
        row = next(line for line in lines if line.startswith(f" {name} "))
        assert number(bound.value) in row
        assert ("vacuous" in row) == bound.vacuous
    stored = written["input margin"]["certificate: γ_out/Π‖W‖_2"]
    assert stored["max"] == pytest.approx(float(margin.spectral.values.max()), rel=1e-5)
    assert written["settings"]["samples"] == len(part) == 360
    assert "wrote there/bounds.json" in answer.out


def test_what_is_proved_and_what_is_not_is_in_the_names(run: Run) -> None:
    answer = run("bounds", *SMALL)
    assert answer.code == 0, answer.err
    assert answer.err.startswith("Note: no --weights")
    assert max(map(len, answer.out.splitlines())) <= 80
    assert sum(line.startswith(" certificate: γ_out") for line in answer.out.splitlines()) == 2
    assert "exact in 2-D" in " ".join(answer.out.split())
    assert "estimate (no certificate)" not in answer.out
    assert "the network has no biases" in " ".join(answer.out.split())


def test_for_many_samples_the_jacobian_bound_is_an_estimate(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widemargin.cli.bounds.MOST_EXACT", 10)
    answer = run("bounds", *SMALL)
    assert answer.code == 0, answer.err
    assert "estimate (no certificate)" in answer.out
    assert "exact in 2-D" not in answer.out


def test_margin_and_band_come_from_the_samples_that_are_right(run: Run) -> None:
    answer = run("bounds", *SMALL, "--samples", "100000", "--split", "test", "--seed", "2")
    assert answer.code == 0, answer.err
    torch.manual_seed(2)
    network = models.build("toy-mlp", hidden=(4,))
    measured = margins.measure(network, data.load("toy").test)
    right = measured.output > 0
    terms = json.loads(Path("runs/bounds/bounds.json").read_text())["bounds"]
    assert terms["Bartlett"]["terms"]["γ"] == pytest.approx(float(measured.output[right].median()))
    assert terms["odn"]["terms"]["((r+θ)/(r−θ))²"] == pytest.approx(9.0)  # θ = r/2
    r = float(measured.margins["input"][right].nanmedian())
    inside = (measured.margins["input"] > r / 2) & (measured.margins["input"] < 1.5 * r)
    assert terms["odn"]["terms"]["L̂_r,θ"] == pytest.approx(1 - float(inside.double().mean()), abs=0.005)


def test_the_same_seed_draws_the_same_samples(run: Run) -> None:
    first, again, other = (run("bounds", *SMALL, "--seed", seed) for seed in ("1", "1", "2"))
    assert first.out == again.out != other.out


def test_batch_norm_leaves_the_certificates(run: Run) -> None:
    answer = run(
        *("bounds", "--model", "odn-mnist-cnn", "--set", "size=8", "--set", "widths=(2, 2)", "--set", "hidden=(4,)"),
        *("--set", "batch_norm=True", "--data", "digits", "--samples", "20"),
    )
    assert answer.code == 0, answer.err
    assert "layer 'norm1' is a BatchNorm2d" in answer.err
    assert "certificate: γ_out" in answer.out
    assert not any(line.startswith((" odn", " Bartlett")) for line in answer.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--biases", "refuse"), "layer 'fc1'"),
        (("--delta", "1"), "--delta is 1.0"),
        (("--r", "1", "--theta", "2"), "--r, --theta: theta is 2.0"),
        (("--margin", "-1"), "--margin: margin is -1.0"),
        (("--covering", "balls"), "--covering is 'balls'"),
        (("--covering", "mixture:0,1"), "--covering: components is 0"),
        (("--probes", "1"), "probes is 1"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_mistakes_are_told_in_a_sentence(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    answer = run("bounds", *SMALL, *arguments)
    assert answer.code == 2
    assert answer.err.splitlines()[-1].startswith("Error: ")
    assert sentence in answer.err


def test_a_network_that_is_no_chain_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "chainless_nets.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 2))\n"
    )
    answer = run("bounds", "--model", "chainless_nets:build", "--data", "toy")
    assert answer.code == 2
    assert "layer '1' is a GELU" in answer.err


def test_coverings_are_parsed() -> None:
    assert parse_covering("measured") == bounds.GreedyCovering()
    assert parse_covering("sparse:30,2") == bounds.SparseDictionary(atoms=30, sparsity=2)


def test_help_fits_into_80_columns_and_its_example_works(run: Run) -> None:
    answer = run("bounds", "-h")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    example = next(line for line in answer.out.splitlines() if "widemargin bounds --model sokolic-mlp" in line)
    assert run(*example.strip(" │").split()[1:], "--samples", "20").code == 0
