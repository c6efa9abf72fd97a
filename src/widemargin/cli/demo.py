"""`widemargin demo`: five losses on 200 images, as a table and a page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli.console import out, say, table, text, wrote
from widemargin.cli.inputs import make_folder
from widemargin.cli.options import Folder, Open, option

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.report.schema import Result


def demo(
    folder: Folder = Path("demo"),
    epochs: Annotated[int, option("Passes over the training images, for each loss.", "N", min=1)] = 60,
    seeds: Annotated[int, option("Networks of each loss; each has its own images and weights.", "N", min=1)] = 3,
    seed: Annotated[int, option("The first seed; the others follow it.", "N", min=0)] = 0,
    sizes: Annotated[
        str, option("Also train on these numbers of images, for a chart of accuracy over their number.", "N,N,…")
    ] = "",
    open_: Open = False,
) -> None:
    """Train a small network with five losses on 200 images, and compare the margins.

    Cross-entropy, ODN, large margin at all layers, cross-entropy with the
    Jacobian regularizer, and WideMargin, each with the same three seeds and
    for the same number of steps; tested on 997 other images of digits.
    Prints a table and writes result.json and page.html.
    """
    from widemargin.report import page
    from widemargin.report.headline import headline

    counts = sizes_of(sizes)
    check_installed(*EXTRAS["report"])  # before the work, not after it
    make_folder(folder)

    from widemargin._io.files import write_json
    from widemargin.cli import five_losses

    result = five_losses.run(epochs=epochs, seeds=range(seed, seed + seeds), sizes=counts, log=say)
    written = write_json(folder / "result.json", result)
    shown = page.write(folder / "page.html", result)
    console = out()
    for line in headline(result):
        console.print(text(line), soft_wrap=True)
    console.print(overview(result))
    console.print(text(f"{result['subtitle']}; margins are l_2 distances at the input"), soft_wrap=True)
    wrote(written, shown)
    open_page(shown, open_)


def open_page(path: Path, wanted: bool) -> None:
    """Open a page in a browser if `wanted` and possible; else print its address."""
    address = path.resolve().as_uri()
    if not (wanted and webbrowser.open(address)):
        out().print(text(f"open it with a browser: {address}"), soft_wrap=True)


def sizes_of(given: str) -> list[int]:
    """Numbers of images such as 50,100,500, in the order given; none for an empty text."""
    counts = []
    for part in filter(None, (part.strip() for part in given.split(","))):
        if not part.isdecimal() or not SMALLEST <= int(part) <= LARGEST:
            raise ValueError(f"--sizes has {part!r}, expected numbers from {SMALLEST} to {LARGEST} such as 50,100,500")
        counts.append(int(part))
    return counts


SMALLEST, LARGEST = 10, 600
"""One image of each class to train on; about 600 left to test on, 500 of them to attack."""

_NARROW = {"mean margin": "mean\nmargin"} | {f"PGD, ε = {e:g}": f"PGD\nε {e:g}" for e in (0.05, 0.1)}
"""Heads in two lines, so that the table fits 80 columns."""


def overview(result: Result) -> Table:
    """The overview of the page as a table for the terminal, the best of each column in bold."""
    from widemargin.report import tables

    found = tables.overview(result)
    heads = [_NARROW.get(head, head) for head in found.heads]
    rows = [(label, *(text(cell.text, "bold" if cell.best else "") for cell in cells)) for label, cells in found.rows]
    return table(result["title"], "loss", *heads, rows=rows, right=heads, no_wrap=["loss", *heads])
