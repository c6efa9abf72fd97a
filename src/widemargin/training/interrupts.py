"""Interrupts of a training: Ctrl-C and SIGTERM wait for the end of the step, so that a checkpoint can be written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Interrupts:
    """The signal that has arrived inside `watched`, if any.

    The first one waits until the training asks for it; a second one acts at once, as without this class. Only the main
    thread of a process gets signals.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Handler] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Hold signals back inside the `with` block; one that has not been handled by its end is raised there."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._arrived)
        try:
            yield
        finally:
            self._restore()
        self.act()

    def act(self) -> None:
        """Let the signal that has arrived act as it would have; nothing happens where none has.

        One that would end the process raises `SystemExit` instead, so that files are closed on the way.
        """
        number, self.signal = self.signal, None
        if number is None:
            return
        if signal.getsignal(number) is signal.SIG_DFL:
            raise SystemExit(128 + number)
        signal.raise_signal(number)

    def _arrived(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # None: set by something that is not Python
                signal.signal(number, handler)
        self._before.clear()
