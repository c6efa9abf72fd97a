"""Global options of the command line."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Session:
    """Options that are given before the command."""

    data_root: Path | None = None
    traceback: bool = False


SESSION: ContextVar[Session] = ContextVar("session", default=Session())  # noqa: B039, a frozen value
