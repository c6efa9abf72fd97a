"""Printing: results on standard output, notices and errors on standard error."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def out() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def say(message: str) -> None:
    """Print progress on standard error."""
    _say(message, "")


def notice(message: str) -> None:
    """Print a notice in yellow on standard error."""
    _say(f"Note: {message}", "yellow")


def complain(message: str) -> None:
    """Print an error in red on standard error."""
    _say(f"Error: {message}", "red")


def wrote(*paths: object) -> None:
    """Print the names of written files, on standard output."""
    for path in paths:
        out().print(text(f"wrote {path}"), soft_wrap=True)


def text(value: object, style: str = "") -> Text:
    """`value` as text in one line, without markup."""
    from rich.text import Text

    return Text(printable(value), style=style)


def printable(value: object) -> str:
    """`value` with line ends and control characters escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


def number(value: float) -> str:
    """Three digits, or a dash for NaN."""
    return "–" if math.isnan(value) else f"{value + 0.0:#.3g}".rstrip(".")  # + 0.0: no −0


def share(value: float) -> str:
    """A share in percent."""
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def table(
    title: str,
    *columns: str,
    rows: Iterable[Sequence[object]] = (),
    right: Collection[str] = (),
    no_wrap: Collection[str] = (),
) -> Table:
    """A table in the common style, narrow enough for 80 columns; the columns `right` are aligned there.

    Columns without names have no header line.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(title=text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    made.show_header = any(columns)
    for column in columns:
        width = max(map(len, column.split("\n")))  # a name is never broken
        justify: Literal["left", "right"] = "right" if column in right else "left"
        made.add_column(column, justify=justify, no_wrap=column in no_wrap, overflow="fold", min_width=width)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else text(cell) for cell in row))
    return made


def _say(message: str, style: str) -> None:
    from rich.console import Console

    # No line breaks here: a terminal wraps a sentence itself, and a log keeps it in one line.
    Console(stderr=True).print(text(" ".join(message.split()), style), soft_wrap=True)
