"""What a user can get wrong is told in one sentence on standard error, with exit code 2 and no traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from widemargin.cli.console import complain
from widemargin.cli.session import SESSION

MISTAKES = (ValueError, TypeError, ImportError, OSError)
"""What the library raises for input that it can't take, and the system for files; anything else is a bug of ours."""


def with_sentences(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with its mistakes told in a sentence, not raised, unless the session asks for the traceback."""

    @functools.wraps(command)
    def told(**options: Any) -> None:
        try:
            command(**options)
        except MISTAKES as error:
            if SESSION.get().traceback or isinstance(error, BrokenPipeError):  # `| head` is no mistake
                raise
            complain(str(error) or type(error).__name__)
            raise typer.Exit(2) from None

    return told


@contextmanager
def about(option: str) -> Iterator[None]:
    """Begin the sentence of an error in the `with` block with the option it is about, as the user wrote it."""
    try:
        yield
    except MISTAKES as error:
        raise ValueError(f"{option}: {error}") from error
