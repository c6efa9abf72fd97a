"""Two bars for a population: the networks that are done, and the steps of those in training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Bar:
    """Shows nothing unless it is given rich's progress display."""

    def __init__(self, display: Any = None, networks: int = 0, steps: int = 0) -> None:
        self._display = display
        if display is not None:
            self._networks = display.add_task("Networks", total=networks)
            self._steps = display.add_task("Steps", total=steps)

    def network(self) -> None:
        """One more network is done."""
        if self._display is not None:
            self._display.advance(self._networks)

    def step(self, number: int) -> None:
        """The networks in training have taken `number` steps."""
        if self._display is not None:
            self._display.update(self._steps, completed=number)


@contextmanager
def bar(networks: int, steps: int, *, progress: bool | None) -> Iterator[Bar]:
    """A bar on standard error while the block lasts; `progress=None` shows it on a terminal only."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=console.is_terminal) as display:
        yield Bar(display, networks, steps)
