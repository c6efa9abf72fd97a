"""One-line errors for invalid input: standard error, exit code 2, no traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from widemargin._io.files import is_disk_full
from widemargin.cli.console import complain
from widemargin.cli.options import SESSION

MISTAKES = (ValueError, TypeError, ImportError, OSError, RecursionError)
"""Exceptions of invalid input, missing packages and files; all others are bugs and keep their traceback."""

OF_LIBRARIES = {
    "safetensors_rust.SafetensorError",
    "safetensors.SafetensorError",
    "concurrent.futures.process.BrokenProcessPool",
    "ray.exceptions.RayError",
}
"""Exceptions of the same kinds in libraries, by name: they are imported only where they are used."""


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with its mistakes printed in one line, or raised with --traceback."""

    @functools.wraps(command)
    def run(**options: object) -> None:
        try:
            command(**options)
        except Exception as error:
            # BrokenPipeError: of `| head`
            if not is_mistake(error) or SESSION.get().traceback or isinstance(error, BrokenPipeError):
                raise
            complain(_sentence(error))
            raise typer.Exit(2) from None

    return run


def is_mistake(error: Exception) -> bool:
    """Whether an exception is about the input, a package, a file or another process, and not a bug."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, MISTAKES) or not names.isdisjoint(OF_LIBRARIES)


def _sentence(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "something in the input has values inside values too deep to be read"
    if isinstance(error, OSError) and error.errno is not None and is_disk_full(error):
        return f"no space is left on the disk{f' for {error.filename}' if error.filename else ''}"
    return str(error) or type(error).__name__


@contextmanager
def about(option: str) -> Iterator[None]:
    """Prefix errors in the `with` block with the name of the option that caused them."""
    try:
        yield
    except MISTAKES as error:
        raise ValueError(f"{option}: {error}") from error
