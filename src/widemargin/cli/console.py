"""Printing: results on standard output, notices and errors on standard error."""

from __future__ import annotations

import codecs
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

NARROWEST = 60
"""Columns of a terminal that a table needs."""


PLAIN = {
    **{"±": "+-", "–": "-", "−": "-", "…": "...", "’": "'", "‘": "'", "“": '"', "”": '"', "×": "x", "·": "*"},
    **{"α": "alpha", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta", "μ": "mu", "σ": "sigma", "Σ": "sum"},
    **{"∞": "inf", "≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "‖": "||", "²": "^2", "§": "section ", "─": "-"},
}
"""Characters that the commands print, as an ASCII terminal can show them."""


def allow_any_terminal() -> None:
    """Let standard output and error replace what their encoding does not have, instead of failing at it."""
    codecs.register_error("widemargin", _in_plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="widemargin")


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(character) or ascii(character)[1:-1] for character in missing), error.end


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

    Columns without names have no header line. A terminal of fewer than 60 columns shows a list of the rows.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    class RowsOrList(Table):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
            if options.max_width >= NARROWEST:
                yield from super().__rich_console__(console, options)
                return
            yield heading
            for row in zip(*(column.cells for column in self.columns), strict=True):
                yield ""
                for name, cell in zip(columns, row, strict=True):
                    yield Text.assemble(f"{' '.join(name.split())}: " if name else "", cell, overflow="fold")

    heading = text(title, "bold")
    made = RowsOrList(title=heading, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
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
