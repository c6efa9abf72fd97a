"""Running the command in an empty folder, 80 columns wide."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from widemargin.cli import app


class Answer:
    """What a command said: exit code, standard output and standard error, and what it did not catch."""

    def __init__(self, *arguments: str) -> None:
        done = CliRunner().invoke(app, list(arguments), prog_name="widemargin")
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr
        self.exception = None if isinstance(done.exception, SystemExit) else done.exception


Run = Callable[..., Answer]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `widemargin` with these arguments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("WIDEMARGIN_DATA", "WIDEMARGIN_TRACEBACK", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)  # no test downloads
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Answer
