"""Margins in other frameworks: Lightning, torchmetrics, scikit-learn and Hugging Face.

Each module is imported when it is first used, and needs the framework that it is named after.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widemargin.integrations import huggingface, lightning, sklearn, torchmetrics

__all__ = ["huggingface", "lightning", "sklearn", "torchmetrics"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module 'widemargin.integrations' has no attribute {name!r}")
    return importlib.import_module(f"widemargin.integrations.{name}")


def __dir__() -> list[str]:
    return __all__
