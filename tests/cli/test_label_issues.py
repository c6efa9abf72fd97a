"""`widemargin label-issues`, from the command line to its table and files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cli.conftest import Run

FAST = ("--epochs", "2", "--folds", "2", "--device", "cpu")


def test_the_table_and_the_files(run: Run) -> None:
    answer = run("label-issues", "--data", "toy", "--model", "toy-mlp", *FAST, "--show", "3", "--on-page", "5")
    assert answer.code == 0, answer.err
    assert "of 400 labels are suspects" in answer.out
    folder = Path("runs/label-issues")
    with (folder / "label_issues.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["index"]) for row in rows) == list(range(400))
    assert {row["given"] for row in rows} == {"upper moon", "lower moon"}
    assert rows[0]["index"] in answer.out.split()
    assert "Labels of toy" in (folder / "page.html").read_text()
    assert (folder / "summary.json").is_file()


def test_a_network_of_its_own_choice(run: Run) -> None:
    answer = run("label-issues", "--data", "toy", *FAST[:2], "--folds", "1", "--device", "cpu", "--show", "0")
    assert answer.code == 0, answer.err
    assert "wrote runs/label-issues/page.html" in answer.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "nothing"), "--data"),
        (("--data", "toy", "--set", "hidden=(4,)"), "no --model"),
        (("--data", "toy", "--model", "elsayed-mnist-cnn"), "--model elsayed-mnist-cnn"),
        (("--data", "toy", "--folds", "300"), "folds is 300"),
    ],
)
def test_bad_options_are_one_line(run: Run, options: tuple[str, ...], message: str) -> None:
    answer = run("label-issues", *options, "--device", "cpu")
    assert answer.code == 2
    assert message in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_own_data_set_the_sizes_of_the_network(run: Run) -> None:
    rows = [f"{i % 3},{i % 5},{i % 7},{'abc'[i % 3]}" for i in range(30)]
    Path("own.csv").write_text("\n".join(["u,v,w,kind", *rows]))
    options = ("--label", "kind", "--model", "toy-mlp", "--epochs", "1", "--folds", "1", "--device", "cpu")
    answer = run("label-issues", "--data", "own.csv", *options)
    assert answer.code == 0, answer.err
    assert "of 30 labels are suspects" in answer.out
    wrong = run("label-issues", "--data", "own.csv", *options, "--set", "classes=2")
    assert wrong.code == 2
    assert "2 scores, but --data own.csv has 3 classes" in " ".join(wrong.err.split())


def test_features_have_the_names_of_their_columns(run: Run) -> None:
    rows = [f"{i % 3},{i % 5},{i % 7},{'abc'[i % 3]}" for i in range(30)]
    Path("own.csv").write_text("\n".join(["<b>u</b>,petal & width,w,kind", *rows]))
    answer = run("label-issues", "--data", "own.csv", "--label", "kind", *FAST)
    assert answer.code == 0, answer.err
    page = Path("runs/label-issues/page.html").read_text(encoding="utf-8")
    heads = ("&lt;b&gt;u&lt;/b&gt;", "petal &amp; width", "w")
    assert "".join(f'<th scope="col">{head}</th>' for head in heads) in page
    assert "<b>u" not in page
