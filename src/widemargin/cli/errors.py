"""One-line errors for invalid input: standard error, exit code 2, no traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from widemargin.cli.console import complain
from widemargin.cli.options import SESSION

MISTAKES = (ValueError, TypeError, ImportError, OSError)
"""Exceptions of invalid input, missing packages and files; all others are bugs and keep their traceback."""


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with its `MISTAKES` printed in one line, or raised with --traceback."""

    @functools.wraps(command)
    def run(**options: object) -> None:
        try:
            command(**options)
        except MISTAKES as error:
            if SESSION.get().traceback or isinstance(error, BrokenPipeError):  # of `| head`
                raise
            complain(str(error) or type(error).__name__)
            raise typer.Exit(2) from None

    return run


@contextmanager
def about(option: str) -> Iterator[None]:
    """Prefix errors in the `with` block with the name of the option that caused them."""
    try:
        yield
    except MISTAKES as error:
        raise ValueError(f"{option}: {error}") from error
