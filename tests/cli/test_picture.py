from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_model

from cli.conftest import Run
from widemargin import models
from widemargin.cli import paper_pictures, plane_pictures
from widemargin.cli.picture import parse_samples
from widemargin.data import Samples
from widemargin.report.check import check_picture

DIGITS = ("picture", "--model", "toy-mlp", "--data", "digits")


def panel() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("runs/picture/picture.json").read_text())["panels"][0]
    return found


def test_the_plane_of_toy_data(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = models.toy_mlp(hidden=(6, 6))
    save_model(network, str(tmp_path / "net.safetensors"))
    options = ("--set", "hidden=(6, 6)", "--weights", "net.safetensors", "--data", "toy", "--split", "train")
    said = run("picture", "--model", "toy-mlp", *options)
    assert said.code == 0, said.err
    assert "cells, exact: on each the network is affine" in said.out
    assert "wrote runs/picture/picture.html" in said.out
    assert "random" not in said.err
    assert Path("runs/picture/picture.svg").read_text().startswith("<svg")
    assert "toy-mlp on toy" in Path("runs/picture/picture.html").read_text()
    found = panel()
    assert len(found["points"]) == 400
    assert all(point["note"].startswith("distance ") for point in found["points"])


def test_the_plane_through_three_samples(run: Run) -> None:
    Path("planar_nets.py").write_text(
        "from torch import nn\n"
        "def build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))\n"
    )
    said = run("picture", "--model", "planar_nets:build", "--data", "digits", "--samples", "4,0,9")
    assert said.code == 0, said.err
    assert "the network has the weights that planar_nets:build gave it" in said.err
    found = panel()
    assert "Markers have the colours of the labels." in found["text"]
    assert found["title"] == "Through samples 4, 0, 9"
    assert len(found["points"]) == 3
    assert all(point["image"].startswith("data:image/png;base64,") for point in found["points"])
    x = plane_pictures_samples()[[4, 0, 9]].flatten(1).double()
    drawn = torch.tensor([[p["x"], p["y"]] for p in found["points"]], dtype=torch.float64)
    torch.testing.assert_close(torch.cdist(drawn, drawn), torch.cdist(x, x), rtol=1e-6, atol=1e-6)  # true distances


def test_a_distance_as_large_as_the_edge_is_a_lower_bound() -> None:
    x = torch.tensor([[0.0, 0.0], [0.5, 0.0]])
    made = plane_pictures.points(
        x, torch.tensor([0, 1]), margins=torch.tensor([-0.25, 0.5]), box=(-1.0, 1.0, -1.0, 1.0)
    )
    assert [point["note"] for point in made] == ["distance -0.25", "distance at least 0.5"]


def plane_pictures_samples() -> torch.Tensor:
    from widemargin.data import load

    return load("digits").test.x


def test_too_many_cells_are_a_raster_and_say_so(run: Run) -> None:
    options = ("--max-cells", "5", "--pixels", "16")
    said = run("picture", "--model", "toy-mlp", "--data", "toy", *options)
    assert said.code == 0, said.err
    assert "Drawn as a raster of 16 × 16 pixels, not exactly: the plane has more than 5 cells" in said.out
    found = panel()
    assert "parts" not in found
    assert len(found["runs"]) >= 16


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("picture",), "--model and --data are needed, or --paper for a picture of a paper"),
        (("picture", "--paper", "sokolic", "--data", "toy"), "--paper is 'sokolic', which trains its own networks"),
        ((*DIGITS, "--samples", "1,2"), "--samples is '1,2'"),
        ((*DIGITS, "--samples", "1,2,2"), "--samples is '1,2,2'"),
        ((*DIGITS,), "--model toy-mlp can't take the inputs of --data digits"),
        (
            ("picture", "--model", "toy-mlp", "--data", "toy", "--samples", "0,1,9000"),
            "--samples: sample 9000",
        ),
        (
            ("picture", "--model", "wrn-28-10", "--set", "depth=10", "--set", "widen=1", "--data", "cifar10"),
            "--data: ",
        ),
    ],
)
def test_mistakes_are_told(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    said = run(*arguments)
    assert said.code == 2
    assert sentence in " ".join(said.err.split())
    assert said.exception is None


def test_a_network_that_is_no_chain_is_told(run: Run) -> None:
    Path("tanh.py").write_text(
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))\n"
    )
    said = run("picture", "--model", "tanh:build", "--data", "toy")
    assert said.code == 2
    assert "--model: layer '1' is Tanh()" in said.err


def test_three_samples_of_three_classes() -> None:
    part = Samples(torch.randn(6, 4), torch.tensor([1, 1, 0, 1, 2, 0]))
    assert plane_pictures.three(part, None) == (0, 2, 4)
    assert plane_pictures.three(Samples(part.x, torch.zeros(6, dtype=torch.long)), None) == (0, 1, 2)
    assert parse_samples("3,14,15") == (3, 14, 15)
    flat = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    with pytest.raises(ValueError, match="the three samples lie on one line"):
        plane_pictures._spanned(flat.double())


def test_sokolics_figure_has_its_four_panels() -> None:
    said: list[str] = []
    shown = check_picture(paper_pictures.sokolic(steps=20, log=said.append))
    assert [panel["title"][:3] for panel in shown["panels"]] == ["(a)", "(b)", "(c)", "(d)"]
    a, b, _, d = shown["panels"]
    assert len(a["parts"]) < len(b["parts"])
    assert b["ellipses"]
    assert [curve["name"] for curve in d["curves"]] == ["r^J = 1", "r^F = 1"]
    # r^F = 1 lies inside r^J = 1, which lies on the sample's side of the boundary.
    far = [max(abs(x - d["points"][0]["x"]) for x, _ in curve["points"]) for curve in d["curves"]]
    assert far[1] < far[0]
    assert said == ["trained a two-layer network on the toy data"]


def test_elsayeds_figure_has_two_boundaries() -> None:
    shown = check_picture(paper_pictures.elsayed(steps=3, log=lambda _: None))
    assert [panel["title"].split(":")[0] for panel in shown["panels"]] == ["Cross-entropy", "Large margin"]
    for panel in shown["panels"]:
        assert {point["group"] for point in panel["points"]} == {"training", "test"}
        assert len(panel["points"]) == 420
