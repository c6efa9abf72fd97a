"""Progress bars with the remaining time, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")


def track(
    items: Iterable[T], description: str, *, total: int | None = None, progress: bool | None = None
) -> Iterator[T]:
    """`items`, with a bar on standard error while they last; `progress=None` shows it on a terminal only.

    `total` is their number where they do not know it themselves; without one the bar shows no end.
    """
    if not is_shown(progress):
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as bar

    console = Console(stderr=True)
    # rich takes the length of `items` if there is one. In a log, a transient bar would leave an empty line.
    yield from bar(items, description, total=total, console=console, transient=console.is_terminal)


class ProgressBars:
    """Bars on standard error, `totals[description]` long each; `progress=None` shows them on a terminal only."""

    def __init__(self, totals: Mapping[str, int | None], *, progress: bool | None) -> None:
        self._display: Progress | None = None
        if not is_shown(progress):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._display = Progress(*columns, console=console, transient=console.is_terminal)
        self._tasks = {name: self._display.add_task(name, total=total) for name, total in totals.items()}
        self._display.start()

    def update(self, description: str, completed: int) -> None:
        """So much of `description` is done."""
        if self._display is not None:
            self._display.update(self._tasks[description], completed=completed)

    def close(self) -> None:
        """Remove the bars."""
        if self._display is not None:
            self._display.stop()


def is_shown(progress: bool | None) -> bool:
    """Whether bars are shown: as `progress` says, and for None on a terminal only."""
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}, expected True, False or None")
    return sys.stderr.isatty() if progress is None else progress
