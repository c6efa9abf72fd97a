"""`widemargin demo`: five losses on 250 images, as a table and a page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli.console import out, say, table, text
from widemargin.cli.errors import about

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.report.schema import Result


def demo(
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where the files go; those there are replaced.")
    ] = Path("demo"),
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Passes over the training images, of each loss.")
    ] = 40,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the choice of images, the first weights and the order.")
    ] = 0,
    sizes: Annotated[
        str,
        typer.Option(metavar="N,N,…", help="Train on so many images too, for a chart of accuracy against data."),
    ] = "",
    open_: Annotated[
        bool, typer.Option("--open", metavar="", help="Open the page in a browser when it is written.")
    ] = False,
) -> None:
    """Train one small network in five ways on 250 images, and compare their margins.

    Cross-entropy, hinge, ODN, large margin at all layers, and cross-entropy
    with the Jacobian regularizer, each from the same first weights and for as
    many steps; tested on the other 4,750 images of mnist-5k. A table is
    printed; result.json and page.html, which any browser opens, are written.
    """
    from widemargin.report import page

    counts = sizes_of(sizes)
    check_installed(*EXTRAS["report"])  # known before the work, not after it
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--out is {str(folder)!r}, which is a file, expected a folder")
    with about("--out"):
        folder.mkdir(parents=True, exist_ok=True)

    from widemargin._io.files import write_json
    from widemargin.cli import five_losses

    result = five_losses.run(epochs=epochs, seed=seed, sizes=counts, told=say)
    written = write_json(folder / "result.json", result)
    shown = page.write(folder / "page.html", result)
    console = out()
    console.print(overview(result))
    console.print(text(f"{result['subtitle']}; margins are l_2 distances at the input"), soft_wrap=True)
    console.print(text(f"wrote {written}"), soft_wrap=True)
    console.print(text(f"wrote {shown}"), soft_wrap=True)
    address = shown.resolve().as_uri()
    if open_ and webbrowser.open(address):
        return
    console.print(text(f"open it with a browser: {address}"), soft_wrap=True)


def sizes_of(given: str) -> list[int]:
    """Numbers of images such as 50,100,1000, in the order given; none for an empty text."""
    counts = []
    for part in filter(None, (part.strip() for part in given.split(","))):
        if not part.isdecimal() or not SMALLEST <= int(part) <= LARGEST:
            raise ValueError(
                f"--sizes has {part!r}, expected numbers of images from {SMALLEST} to {LARGEST} such as 50,100,1000"
            )
        counts.append(int(part))
    return counts


SMALLEST, LARGEST = 10, 4000
"""One image of each class to train on; a thousand of the 5,000 left to test on."""

_NARROW = {"mean margin": "mean\nmargin"} | {f"FGSM, ε = {e:g}": f"FGSM\nε {e:g}" for e in (0.05, 0.1)}
"""Heads in two lines, so that the table fits 80 columns."""


def overview(result: Result) -> Table:
    """The first table of the page, for a terminal; the best of each column is bold."""
    from widemargin.report import tables

    found = tables.overview(result)
    made = table(result["title"])
    made.add_column("loss", no_wrap=True)
    for head in found.heads:
        made.add_column(_NARROW.get(head, head), justify="right", no_wrap=True)
    for label, cells in found.rows:
        made.add_row(text(label), *(text(cell.text, "bold" if cell.best else "") for cell in cells))
    return made
