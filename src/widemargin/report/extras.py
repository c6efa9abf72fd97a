"""The optional packages of the report, imported where they are used."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def is_installed() -> bool:
    """Whether a page can be made here: the packages of the extra `report` are there."""
    return all(importlib.util.find_spec(module) is not None for module in ("altair", "vl_convert", "jinja2"))


def check_installed() -> None:
    """Raise the sentence of `need` unless a page can be made here, for those who want to know before their work."""
    for module in ("altair", "vl_convert", "jinja2"):
        need(module)


def need(module: str) -> Any:
    """The module, or an `ImportError` that names the extra which brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ImportError(
            f"the report needs {module}, which is not installed: pip install 'widemargin[report]'"
        ) from error
