from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from widemargin._io.optional import EXTRAS, check_installed, import_optional, is_installed


def test_an_installed_module_is_returned() -> None:
    assert import_optional("json", "this") is json
    assert is_installed("json", "sys")
    check_installed("json", purpose="this")


@pytest.mark.parametrize("module", ["altair", "PIL.Image", "pyarrow.parquet"])
def test_a_missing_package_names_its_purpose_and_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = module.split(".")[0]
    extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, module, None)
    assert not is_installed("json", package)
    with pytest.raises(ImportError, match=rf"this .*{package}.*'widemargin\[{extra}\]'"):
        import_optional(module, "this")
    with pytest.raises(ImportError, match=rf"this .*{package}.*'widemargin\[{extra}\]'"):
        check_installed("json", package, purpose="this")
    with pytest.raises(ImportError, match=rf"^{package}.*'widemargin\[{extra}\]'"):
        import_optional(module)


def test_a_failure_inside_the_module_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("import another_missing_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'another_missing_module'"):
        import_optional("broken_module", "this")
    assert "broken_module" not in sys.modules


def test_every_extra_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) <= set(project["optional-dependencies"])
