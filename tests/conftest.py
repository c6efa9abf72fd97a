"""What every test may use: hypothesis without surprises, and a way to see the package's own errors."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import jaxtyping
import pytest
from hypothesis import settings

# A shell that starts the tests in the background makes them ignore Ctrl-C, which some of them send to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, however slow the machine: a failure in CI is a failure at home.
settings.register_profile("widemargin", deadline=None, derandomize=True)
settings.load_profile("widemargin")


@pytest.fixture
def untyped() -> Iterator[None]:
    """Shapes are not checked inside this test, as outside tests: bad input meets the package's own sentence."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
