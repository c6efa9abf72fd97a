from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from widemargin.data.extras import need


def test_what_is_there_is_returned() -> None:
    assert need("json", "files", "this") is json


def test_what_is_not_there_names_the_extra() -> None:
    with pytest.raises(ImportError, match=r"this needs no_such_module, .* pip install 'widemargin\[files\]'"):
        need("no_such_module", "files", "this")
    with pytest.raises(ImportError, match="this needs no_such_module,"):
        need("no_such_module.inner", "files", "this")


def test_a_failure_inside_the_module_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("import another_missing_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'another_missing_module'"):
        need("broken_module", "files", "this")
    assert "broken_module" not in sys.modules
