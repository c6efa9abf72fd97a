"""The program benchmarks/grid.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import grid
from default_grid import arms, evaluation, jobs, mma, networks, tasks
from default_grid.evaluation import RADII
from default_grid.jobs import Job, Place
from default_grid.summary import above_the_baseline_of_the_other_seeds, at_radius, goals, half_radius, summarise
from default_grid.workers import missing
from widemargin.population.stack import Stack


def line(arm: str = "cross-entropy", *, accuracy: float = 0.8, distance: float = 1.0, **changed: Any) -> dict[str, Any]:
    run = {"dead": False, "accuracy": accuracy, "training accuracy": 1.0, "distance": distance}
    runs = [{"lr": 0.1, "seed": seed, **run, "attacked": [accuracy] * len(RADII)} for seed in (0, 1)]
    job = {"task": "digits", "network": "mlp", "arm": arm, "optimizer": "sgd", "steps": 400, "runs": runs}
    return {**job, "commit": "abc", "versions": {}, "hardware": {}, **changed}


def test_jobs_are_kept_and_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    part = ["--tasks", "wine", "--arms", "cross-entropy", "wide margin", "--seeds", "0", "--scale", "0.02"]
    grid.main([*part, "--rows", str(rows)])
    grid.main([*part, "--rows", str(rows)])
    assert "0 jobs to do, 4 done" in capsys.readouterr().out
    lines = [json.loads(text) for text in rows.read_text().splitlines()]
    assert len(lines) == 4
    assert {run["lr"] for run in lines[0]["runs"]} in ({0.01, 0.03, 0.1}, {3e-4, 1e-3, 3e-3})
    assert all(0 < run["accuracy"] < 1 and len(run["attacked"]) == len(RADII) for run in lines[0]["runs"])
    grid.main(["summary", "--rows", str(rows), "--out", str(tmp_path / "grid.json")])
    written = json.loads((tmp_path / "grid.json").read_text())
    assert len(written["cells"]) == 12
    assert "versions" in written


def test_a_network_that_dies_is_recorded_and_the_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(arms.RATES, "sgd", (0.01, 1e20))
    job = Job(task="wine", network="mlp", arm="cross-entropy", optimizer="sgd", seeds=(0,), steps=5)
    assert [run["dead"] for run in jobs.run(job, Place())["runs"]] == [False, True]


def test_missing_seeds_alone_are_run() -> None:
    job = Job(task="digits", network="mlp", arm="cross-entropy", optimizer="sgd", seeds=(0, 1, 2), steps=400)
    (left,) = missing([job], [line()])
    assert left.seeds == (2,)
    assert missing([job], [line(steps=40)]) == [job]


def test_attacks_in_small_batches_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last batch is smaller than the others."""
    torch.manual_seed(0)
    model, x = networks.mlp((6,), 3).double(), 3 * torch.randn(50, 6, dtype=torch.float64)
    with torch.no_grad():
        y = model(x).argmax(dim=1)
    found = evaluation.under_attack(model, x, y)
    monkeypatch.setattr(evaluation, "CPU_BATCH", len(x))
    assert found == pytest.approx(evaluation.under_attack(model, x, y))
    assert found[0] == 1
    assert found[-1] < 0.99


@pytest.mark.parametrize("name", networks.NETWORKS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_networks(name: str, shape: tuple[int, int, int]) -> None:
    assert networks.NETWORKS[name](shape, 10)(torch.randn(2, *shape)).shape == (2, 10)


def test_tasks_are_standardised_by_their_training_samples() -> None:
    train, test = tasks.load("wine", 0, None, "cpu")
    other, _ = tasks.load("wine", 1, None, "cpu")
    assert (len(train), len(test)) == (60, 118)
    torch.testing.assert_close(train.x.mean(dim=0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.x.std(dim=0), torch.ones(13), atol=1e-4, rtol=0)
    assert not torch.equal(train.y, other.y)


def test_images_of_a_folder_and_their_flips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 1, 28, 28), dtype=np.uint8), np.arange(40) % 10
    np.savez(tmp_path / "mnist.npz", x=x, y=y, tx=x[:5], ty=y[:5])
    monkeypatch.setitem(tasks.TASKS, "tiny", tasks.Task(data="mnist", train=30, steps=1, flips=0.4))
    train, test = tasks.load("tiny", 0, tmp_path, "cpu")
    assert train.x.shape == (30, 1, 28, 28)
    assert len(test) == 5
    monkeypatch.setitem(tasks.TASKS, "clean", tasks.Task(data="mnist", train=30, steps=1))
    clean, _ = tasks.load("clean", 0, tmp_path, "cpu")
    assert torch.equal(clean.x, train.x)
    assert int((clean.y != train.y).sum()) == 12


def test_the_radius_that_halves_the_accuracy() -> None:
    falling = [0.8, 0.6, 0.5, 0.3, 0.1, 0.0]
    assert half_radius(falling) == pytest.approx(0.03)
    assert at_radius(falling, 0.03) == pytest.approx(0.4)
    assert half_radius([0.8] * 6) == RADII[-1]


def test_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = [{"lr": 0.1, "seed": 0, "dead": True}, {**line()["runs"][1], "accuracy": 0.9}]
    flips: dict[str, Any] = {"task": "mnist-2000-flips", "steps": 900}
    lines = [
        *(line(), line("wide margin", accuracy=0.85, distance=3.0), line("odn", runs=dead)),
        *(line(**flips), line("wide margin", accuracy=0.7, **flips)),
        *(line(accuracy=0.15, network="cnn"), line("wide margin", network="cnn")),  # cross-entropy does not train
    ]
    summarise(lines, tmp_path / "grid.json")
    written = json.loads((tmp_path / "grid.json").read_text())
    row = written["all"]["wide margin"]
    assert row["settings"] == 2
    assert row["gain, few samples"] == pytest.approx(5)
    assert row["gain, flips"] == pytest.approx(-10)
    assert row["within 1 point"] == 0.5
    assert row["distance ratio"] == pytest.approx(2)
    assert row["attacked, points"] == pytest.approx(-2.5)
    assert written["all"]["odn"]["not finite"] == 1
    assert written["all"]["odn"]["gain"] == pytest.approx(100 * ((0.1 + 0.9) / 2 - 0.8))
    beside = written["beside the default"]["odn"]
    assert (beside["arm"]["settings"], beside["default"]["settings"]) == (1, 1)
    assert beside["default"]["gain"] == pytest.approx(5)
    assert written["above the best baseline"] == pytest.approx(5)  # where ODN ran beside cross-entropy
    met = {goal["goal"][:9]: goal["met"] for goal in written["goals"]}
    assert met["mean gain"] is False
    assert met["median ra"] is True
    assert "MISSED" in capsys.readouterr().out
    assert goals({"all": {}, "above the best baseline": None}) == []


def test_arms_are_compared_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    base = line()["runs"][0]
    lines = [
        line(runs=[base, {**base, "seed": 1, "accuracy": 0.4, "distance": 5.0}]),
        line("wide margin", runs=[{**base, "accuracy": 0.82, "distance": 2.0}]),
        line("odn", runs=[{**base, "seed": 2}]),
    ]
    summarise(lines, tmp_path / "grid.json")
    table = json.loads((tmp_path / "grid.json").read_text())["all"]
    assert table["wide margin"]["gain"] == pytest.approx(2)
    assert table["wide margin"]["distance ratio"] == pytest.approx(2)
    assert "odn" not in table


def test_luck_does_not_choose_the_best_baseline() -> None:
    """Weight decay is the best one with seed 0 alone: the other seed has to pay for it."""
    first, second = line()["runs"]
    decay = line("weight decay", runs=[{**first, "accuracy": 0.9}, {**second, "accuracy": 0.74}])
    lines = [line(), line("wide margin", accuracy=0.85), decay]
    found = above_the_baseline_of_the_other_seeds(lines)
    assert found["settings"] == 1
    assert found["points"] == pytest.approx(((85 - 80) + (85 - 74)) / 2)
    assert found["of the same, chosen by all seeds"] == pytest.approx(85 - (90 + 74) / 2)
    one_seed = line("odn", runs=[{**first, "accuracy": 0.99}])
    assert above_the_baseline_of_the_other_seeds([*lines, one_seed]) == found
    dead = line("weight decay", runs=[first, {"lr": 0.1, "seed": 1, "dead": True}])
    both = above_the_baseline_of_the_other_seeds([*lines[:2], dead])
    assert both["points"] == pytest.approx(((85 - 80) + (85 - 80)) / 2)
    untrained = [line(accuracy=0.15), line("wide margin"), line("weight decay")]
    assert above_the_baseline_of_the_other_seeds(untrained)["settings"] == 0


def test_a_summary_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="rows"):
        grid.main(["summary", "--rows", str(tmp_path / "none.jsonl")])


def test_max_margin_adversarial_training_finds_the_boundary() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(100, 2) for _ in range(2)]
    linear = [torch.nn.Sequential(torch.nn.Flatten(), layer) for layer in layers]
    x = 0.02 * torch.randn(2, 8, 1, 10, 10)
    y = torch.stack([network(rows).argmax(dim=1) for network, rows in zip(linear, x)])
    points, is_found = mma.nearest_point(Stack(linear, torch.device("cpu")), x, y.flatten())
    assert bool(is_found.any())
    for k, network in enumerate(linear):
        weight = layers[k].weight.detach()
        scores = network(x[k]).detach()
        distances = (scores[:, 0] - scores[:, 1]).abs() / (weight[0] - weight[1]).norm()
        moved = (points[k] - x[k]).flatten(1).norm(dim=1)
        found = is_found.view(2, -1)[k]
        assert torch.equal(found, distances < mma.D_MAX * 10)
        assert bool((moved[found] >= 0.999 * distances[found]).all())
        assert bool((moved[found] <= distances[found] + 1.1 * mma.D_MAX * 10 / 2**mma.BISECTIONS).all())


def test_max_margin_adversarial_training_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(arms.RATES, "adam", (3e-3,))
    job = Job(task="wine", network="mlp", arm="mma", optimizer="adam", seeds=(0,), steps=15)
    assert max(run["accuracy"] for run in jobs.run(job, Place())["runs"]) > 0.7
