"""The optional packages of the report, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any


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
