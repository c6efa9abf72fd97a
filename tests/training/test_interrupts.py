"""Signals that wait for the end of a step."""

from __future__ import annotations

import signal
import threading

import pytest

from widemargin.training.interrupts import Interrupts


def test_the_first_signal_waits_and_the_second_acts() -> None:
    before = signal.getsignal(signal.SIGINT)
    found = Interrupts()
    with found.watched():
        signal.raise_signal(signal.SIGINT)
        assert found.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        found.signal = None
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_acts_when_it_is_asked_for_or_at_the_end(number: signal.Signals, raised: type[BaseException]) -> None:
    found = Interrupts()
    with found.watched():
        signal.raise_signal(number)
        with pytest.raises(raised):
            found.act()
        found.act()  # once
    with pytest.raises(raised), found.watched():
        signal.raise_signal(number)
    with found.watched():
        found.act()


def test_a_thread_gets_no_signals() -> None:
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with Interrupts().watched():
            assert signal.getsignal(signal.SIGINT) is before

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
