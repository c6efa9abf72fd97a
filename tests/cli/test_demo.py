"""`widemargin demo`, with a network and sets of samples so small that it takes seconds."""

from __future__ import annotations

import json
import statistics
import sys
import webbrowser
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import Run
from widemargin.cli import five_losses
from widemargin.data import subset
from widemargin.report import page
from widemargin.report.check import check
from widemargin.report.headline import headline


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with 40 test images."""
    monkeypatch.setattr(five_losses, "NETWORK", {"size": 8, "widths": (2, 2), "hidden": (8, 8)})
    monkeypatch.setattr(five_losses, "IMAGES", 30)
    monkeypatch.setattr(five_losses, "ATTACKED", 20)
    monkeypatch.setattr(five_losses, "WATCHED", 20)
    monkeypatch.setattr(five_losses, "PGD_STEPS", 2)
    monkeypatch.setattr(page, "_bundle", str)  # the chart library takes seconds, and no browser looks
    few = subset(five_losses.images()[0], count=70, seed=0, balanced=True)
    monkeypatch.setattr(five_losses, "images", lambda: (few, few))


@pytest.mark.usefixtures("small")
def test_the_demo_prints_a_table_and_writes_a_page(run: Run) -> None:
    answer = run("demo", "--epochs", "2", "--seed", "3", "--seeds", "2", "--out", "there")
    assert answer.code == 0, answer.err
    labels = [method.label for method in five_losses.METHODS]
    result = check(json.loads(Path("there/result.json").read_text(encoding="utf-8")))
    lines = answer.out.splitlines()
    told = headline(result)
    assert lines[: len(told)] == told
    for label in labels:
        assert sum(line.lstrip().startswith(f"{label}  ") for line in lines) == 1, label
        assert f"{label}: 2 networks trained and attacked in " in answer.err
    assert max(map(len, lines[len(told) : len(told) + 10])) <= 80
    for head in ("accuracy", "mean", "PGD", "ε 0.05", "ε 0.1", "±"):
        assert head in answer.out
    assert f"open it with a browser: {Path('there/page.html').resolve().as_uri()}" in answer.out

    assert [arm["label"] for arm in result["arms"]] == labels
    assert result["subject"] == "wide-margin"
    for arm in result["arms"]:
        assert arm["samples"] == 40
        assert [one["seed"] for one in arm["seeds"]] == [3, 4]
        assert len(arm["margins"]["input"]) == 80
        assert arm["accuracy"] == pytest.approx(statistics.fmean(one["accuracy"] for one in arm["seeds"]))
        assert {row["epoch"] for row in arm["history"]} == {0, 1, 2}
        assert {row["split"] for row in arm["history"]} == {"train", "validation"}
        assert [point["epsilon"] for point in arm["curve"]] == list(five_losses.EPSILONS)
        for k, point in enumerate(arm["curve"]):
            assert point["accuracy"] == pytest.approx(
                statistics.fmean(one["curve"][k]["accuracy"] for one in arm["seeds"])
            )
        assert len(arm["hardest"]) == 12
    first = {tuple(v for k, v in arm["history"][0].items() if k == "accuracy") for arm in result["arms"]}
    assert len(first) == 1  # the same first weights
    assert result["settings"]["seeds"] == "2 seeds (3, 4)"
    text = Path("there/page.html").read_text(encoding="utf-8")
    assert all(f'id="{section}"' in text for section in ("margins", "attack", "training", "hardest", "facts"))


@pytest.mark.usefixtures("small")
def test_accuracy_against_data_where_asked_and_one_seed(run: Run) -> None:
    answer = run("demo", "--epochs", "1", "--sizes", "20, 10", "--seeds", "1", "--out", "there")
    assert answer.code == 0, answer.err
    result = check(json.loads(Path("there/result.json").read_text(encoding="utf-8")))
    for arm in result["arms"]:
        assert "seeds" not in arm
        assert [point["samples"] for point in arm["sizes"]] == [10, 20, five_losses.IMAGES]
        assert arm["sizes"][-1]["accuracy"] == pytest.approx(arm["accuracy"])
    assert 'id="data"' in Path("there/page.html").read_text(encoding="utf-8")
    assert "±" not in answer.out


def test_a_larger_set_begins_with_the_smaller_one() -> None:
    every = five_losses.images()[0]
    small, large = five_losses.split(every, 1), five_losses.split(every, 1, 400)
    assert torch.equal(large[0].x[: len(small[0])], small[0].x)
    assert len(large[1]) == len(every) - 400


def test_means_of_tables() -> None:
    first, second = [{"epoch": 1, "loss": 1.0, "split": "train"}], [{"epoch": 1, "loss": 2.0, "split": "train"}]
    assert five_losses._means([first, second]) == [{"epoch": 1, "loss": 1.5, "split": "train"}]
    assert five_losses._means([first, [{**second[0], "loss": None}]]) == [{"epoch": 1, "loss": None, "split": "train"}]


@pytest.mark.parametrize("given", ["many", "5", "250,-1", "1.5", "100000"])
def test_sizes_that_are_none_are_refused(run: Run, given: str) -> None:
    answer = run("demo", "--sizes", given)
    assert answer.code != 0
    assert "--sizes has" in answer.err
    assert not Path("demo").exists()


def test_the_test_images_are_the_others() -> None:
    every, others = five_losses.images()
    assert len(every) + len(others) == 1797
    assert not {row.tobytes() for row in every.x.numpy()} & {row.tobytes() for row in others.x.numpy()}
    train, test = five_losses.split(every, 1)
    assert torch.bincount(train.y).tolist() == [five_losses.IMAGES // 10] * 10
    assert train.index is not None
    assert test.index is not None
    assert torch.equal(torch.cat([train.index, test.index]).sort().values, torch.arange(len(every)))
    assert not torch.equal(five_losses.split(every, 2)[0].x, train.x)


@pytest.mark.usefixtures("small")
def test_the_page_is_opened_where_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(five_losses, "METHODS", five_losses.METHODS[:1])
    answer = run("demo", "--epochs", "1", "--seeds", "1", "--open")
    assert answer.code == 0, answer.err
    assert opened == [Path("demo/page.html").resolve().as_uri()]
    assert "open it with a browser" not in answer.out


def test_the_shown_epsilons_are_measured() -> None:
    assert set(five_losses.SHOWN) <= set(five_losses.EPSILONS)
    assert list(five_losses.EPSILONS) == sorted(five_losses.EPSILONS)


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [("altair", "altair is not installed: pip install 'widemargin[report]'"), ("file", "file")],
)
def test_mistakes_are_told_before_any_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, prepare: str, sentence: str
) -> None:
    def never(**_: Any) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(five_losses, "run", never)
    if prepare == "altair":
        monkeypatch.setitem(sys.modules, "altair", None)
    else:
        Path("demo").write_text("")
        sentence = "--out is 'demo', which is a file, expected a folder"
    answer = run("demo")
    assert answer.code == 2
    assert sentence in answer.err
