"""Optional dependencies, imported where they are used, with a sentence that says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """The module, or an `ImportError` that names the extra of this package which brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise ImportError(
            f"{purpose} needs {error.name}, which is not installed: pip install 'widemargin[{extra}]'"
        ) from error
