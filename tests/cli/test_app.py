"""The command as a whole: help, version, and how errors are told."""

from __future__ import annotations

import subprocess
import sys

import pytest

import widemargin
from cli.conftest import Run

WRONG = ("measure", "--model", "nothing", "--data", "toy")


def test_help_names_every_command_and_shows_an_example_that_works(run: Run) -> None:
    answer = run("--help")
    assert answer.code == 0
    assert {"measure", "models", "data"} <= set(answer.out.split())
    example = next(line for line in answer.out.splitlines() if line.strip().startswith("widemargin measure"))
    assert run(*example.split()[1:]).code == 0


@pytest.mark.parametrize("command", ["measure", "models", "data"])
def test_help_of_a_command_fits_into_80_columns_with_its_examples(run: Run, command: str) -> None:
    answer = run(command, "-h")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert f"  widemargin {command}" in answer.out  # indented, so not run into the text
    assert "[bold]" not in answer.out
    assert "<bool>  Show the st" not in answer.out


def test_no_arguments_show_the_help(run: Run) -> None:
    answer = run()
    assert "Usage: widemargin" in answer.out + answer.err


def test_version(run: Run) -> None:
    assert run("--version").out == f"widemargin {widemargin.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("measure", "--help"), ("models", "--help"), ("data", "--help"), ("data",)]
)
def test_help_does_not_import_torch(arguments: tuple[str, ...]) -> None:
    program = (
        "import sys\nHEAVY = ('torch', 'numpy', 'sklearn')\n"
        "from widemargin.cli import app\n"
        "try:\n    app(sys.argv[1:])\n"
        "finally:\n    print(*(name for name in HEAVY if name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_a_traceback_is_shown_when_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*WRONG).exception is None
    assert isinstance(run("--traceback", *WRONG).exception, ValueError)
    monkeypatch.setenv("WIDEMARGIN_TRACEBACK", "1")
    assert isinstance(run(*WRONG).exception, ValueError)


def test_errors_are_red_on_a_terminal_and_plain_in_a_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run(*WRONG).err
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(*WRONG).err.startswith("\x1b[31mError: --model: name is 'nothing'")


def test_a_bug_is_not_told_as_a_mistake_of_the_user(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("widemargin.cli.inputs.parse_settings", bug)
    assert isinstance(run(*WRONG).exception, KeyError)


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m widemargin data | head -c 1", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
