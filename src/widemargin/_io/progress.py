"""Progress bars with the time left, on a terminal; silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, progress: bool | None = None) -> Iterator[T]:
    """`items`, with a bar on standard error while they last; `progress=None` shows it on a terminal only."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as bar

    # rich asks for the length itself, and makes do without one where a stream has none.
    console = Console(stderr=True)
    # A bar that vanishes at the end would leave an empty line in a log.
    yield from bar(items, description, console=console, transient=console.is_terminal)
