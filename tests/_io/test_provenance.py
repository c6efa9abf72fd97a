"""Where a result came from."""

from __future__ import annotations

import subprocess

import pytest

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
