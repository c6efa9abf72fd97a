"""`widemargin data`."""

from __future__ import annotations

import pytest

from cli.conftest import Run
from widemargin import data
from widemargin.cli.data import ABOUT


def test_every_name_is_listed_with_what_it_is(run: Run) -> None:
    answer = run("data")
    assert answer.code == 0, answer.err
    assert list(ABOUT) == list(data.names())
    for name, (what, where) in ABOUT.items():
        line = next(line for line in answer.out.splitlines() if line.startswith(f" {name} "))
        assert what in line
        assert where in line
    assert max(map(len, answer.out.splitlines())) <= 80


def test_one_is_loaded_and_described(run: Run) -> None:
    answer = run("data", "toy")
    assert answer.code == 0, answer.err
    assert answer.out.count("400 samples") == 2
    assert "2, torch.float32" in answer.out
    assert "2: upper moon, lower moon" in answer.out


def test_names_of_classes_are_printed_as_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = data.load("toy")
    odd = data.Data("[b]toy", toy.train, toy.test, ("[bold]x[/bold]", "[/]\x1b"), (0.0, 1.0))
    monkeypatch.setattr(data, "load", lambda *_, **__: odd)
    answer = run("data", "toy")
    assert "2: [bold]x[/bold], [/]\\x1b" in answer.out
    assert "[b]toy" in answer.out
    assert "0 to 1" in answer.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("digit",), "NAME: name is 'digit'"),
        (("mnist", "--data-root", "absent"), "NAME: root is 'absent', which is not a folder"),
    ],
)
def test_what_a_user_gets_wrong_is_one_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    answer = run("data", *arguments)
    assert (answer.code, answer.out, answer.exception) == (2, "", None)
    assert answer.err.startswith(f"Error: {said}")


def test_the_environment_names_the_root(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEMARGIN_DATA", "absent")
    answer = run("data", "mnist")
    assert answer.code == 2
    assert answer.err == "Error: NAME: WIDEMARGIN_DATA is 'absent', which is not a folder\n"
