"""Where a result came from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from subprocesses import SOURCE
from widemargin._io.provenance import provenance


def test_a_named_commit_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEMARGIN_COMMIT", "0123abcd")
    assert provenance()["commit"] == "0123abcd"


def test_without_history_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_git(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.delenv("WIDEMARGIN_COMMIT", raising=False)
    monkeypatch.setattr(subprocess, "run", no_git)
    found = provenance()
    assert found["commit"] is None
    assert found["versions"]["torch"]
    assert found["hardware"]["device"] == "cpu"


def commit_of(package: Path, **environment: str) -> str:
    """The commit that a copy of the package in the folder `package` records."""
    code = "from widemargin._io.provenance import _commit; print(_commit())"
    command = [sys.executable, "-S", "-c", code]
    path = {"PYTHONPATH": str(package), "PATH": "/usr/bin:/bin", "HOME": str(package), **environment}
    return subprocess.run(command, env=path, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def repository(folder: Path, name: str) -> str:
    """A repository of a project of that name; its commit."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "pyproject.toml"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    done = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def copy(folder: Path) -> Path:
    """A folder with as much of the package as provenance takes."""
    (folder / "widemargin" / "_io").mkdir(parents=True)
    for name in ("__init__.py", "_io/__init__.py", "_io/provenance.py"):
        (folder / "widemargin" / name).write_bytes((SOURCE / "widemargin" / name).read_bytes())
    return folder


def test_only_a_checkout_of_this_project_counts(tmp_path: Path) -> None:
    other = repository(tmp_path / "theirs", "analysis")
    mine = repository(tmp_path / "mine", "widemargin")
    installed = copy(tmp_path / "theirs" / ".venv" / "lib" / "site-packages")
    (installed / "widemargin-9.8.7.dist-info").mkdir()
    (installed / "widemargin-9.8.7.dist-info" / "METADATA").write_text("Name: widemargin\nVersion: 9.8.7\n")
    assert commit_of(installed) == "wheel 9.8.7"
    assert other not in commit_of(copy(tmp_path / "theirs" / "src"))  # a copy of the source in another project
    checkout = copy(tmp_path / "mine" / "src")
    assert commit_of(checkout) == mine
    assert commit_of(checkout, GIT_DIR=str(tmp_path / "theirs" / ".git")) == mine
    assert commit_of(installed, WIDEMARGIN_COMMIT="abc") == "abc"
