from __future__ import annotations

from pathlib import Path

import pytest

from widemargin.data import default_root
from widemargin.data.roots import folders, resolve


def test_an_argument_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_root() is None
    assert resolve(None) is None
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path / "a"))
    assert default_root() == resolve(None) == tmp_path / "a"
    assert resolve(str(tmp_path)) == resolve(tmp_path) == tmp_path
    monkeypatch.setenv("WIDEMARGIN_DATA", "")
    assert default_root() is None


def test_a_root_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=f"root is '{tmp_path}/no', which is not a folder"):
        resolve(tmp_path / "no")
    monkeypatch.setenv("WIDEMARGIN_DATA", f"{tmp_path}/no")
    with pytest.raises(FileNotFoundError, match=f"WIDEMARGIN_DATA is '{tmp_path}/no', which is not a folder"):
        resolve(None)


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~") == tmp_path


def test_the_folder_of_the_data_set_before_the_root(tmp_path: Path) -> None:
    (tmp_path / "set" / "raw").mkdir(parents=True)
    assert folders(tmp_path, ("set", "other")) == (tmp_path / "set", tmp_path / "set" / "raw", tmp_path)
