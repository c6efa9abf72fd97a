"""The command as a whole: help, version, and how errors are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

import widemargin
from cli.conftest import Run
from subprocesses import child_env

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


class SafetensorError(Exception):
    """As that of safetensors."""


SafetensorError.__module__ = "safetensors_rust"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SafetensorError("header too small"), "header too small"),
        (BrokenProcessPool("a process was ended"), "a process was ended"),
        (RecursionError("maximum recursion depth exceeded"), "too deep"),
        (OSError(28, "No space left on device", "runs/x"), "no space is left on the disk for runs/x"),
    ],
)
def test_exceptions_of_libraries_are_sentences(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("widemargin.cli.inputs.parse_settings", fail)
    answer = run(*WRONG)
    assert (answer.code, answer.exception) == (2, None)
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1


def command(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    called = [sys.executable, "-m", "widemargin", *arguments]
    env = {key: value for key, value in child_env(**environment).items() if key not in ("LANG", "LC_ALL")}
    return subprocess.run(called, env=env, capture_output=True, check=False, timeout=120)


def test_a_terminal_that_knows_only_ascii_shows_everything() -> None:
    done = command("study", "show", "E3", PYTHONIOENCODING="ascii", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"+- 1" in done.stdout
    assert b"elsayed, Fig. 2" in done.stdout
    told = command("measure", "--model", "γ", "--data", "toy", PYTHONIOENCODING="ascii")
    assert told.returncode == 2
    assert b"gamma" in told.stderr


def test_names_that_are_no_unicode_are_told_and_used(tmp_path: Path) -> None:
    told = command("study", "verdicts", "--results", b"/tmp/\xff")
    assert told.returncode == 2
    assert rb"/tmp/\udcff" in told.stderr
    (tmp_path / "results").mkdir()
    done = command("report", "--results", str(tmp_path / "results"), "--out", bytes(tmp_path) + b"/\xff")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / os.fsdecode(b"\xff") / "index.html").is_file()


def test_forty_columns_show_every_entry(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run("study", "list")
    assert narrow.code == 0
    assert max(map(len, narrow.out.splitlines())) <= 40
    monkeypatch.setenv("COLUMNS", "200")
    words = {word for word in run("study", "list").out.split() if word.isalnum()}
    assert words <= set(narrow.out.replace(":", " ").split())


def test_help_says_that_a_builder_runs_and_where_it_is_looked_for(run: Run) -> None:
    said = " ".join(run("measure", "--help").out.replace("│", " ").split())
    assert "its code runs" in said
    assert "in the current directory first, then on PYTHONPATH" in said


def test_sigterm_ends_a_command_with_its_own_exit_code() -> None:
    """A study that sleeps for a minute is told to end; what it has finished is kept."""
    code = (
        "import os, signal, threading\n"
        "from widemargin import cli\n"
        "from widemargin.cli import study\n"
        "import widemargin.studies.run as running\n"
        "def run(*_, **__):\n"
        "    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()\n"
        "    signal.pause()\n"
        "running.run = run\n"
        "cli.main()\n"
    )
    arguments = ["study", "run", "E3", "--scale", "smoke", "--device", "cpu"]
    called = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(called, env=child_env(), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 128 + signal.SIGTERM
    assert "E3 was stopped, its finished trials are kept: the same command continues it" in done.stderr
    assert "Traceback" not in done.stderr
