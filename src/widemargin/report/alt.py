"""Altair, imported when a chart is first drawn."""

from __future__ import annotations

from typing import Any

from widemargin._io.optional import import_optional


def __getattr__(name: str) -> Any:
    return getattr(import_optional("altair"), name)
