"""`widemargin report`: the scoreboard of the studies, and a page for each."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli.console import out, text
from widemargin.cli.errors import about


def report(
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Where <ID>.json lie.")] = Path("results"),
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where the pages go; those there are replaced.")
    ] = Path("report"),
    open_: Annotated[
        bool, typer.Option("--open", metavar="", help="Open the scoreboard in a browser when it is written.")
    ] = False,
) -> None:
    """Write the scoreboard: what the papers report, what was measured, and the verdict.

    index.html has a row for every study; each study with a result has a page
    of its own, with the paper's figure drawn again from our rows.
    """
    from widemargin.report import studies
    from widemargin.studies import catalog, result

    check_installed(*EXTRAS["report"])
    found = []
    for study in catalog.declared():
        path = results / f"{study.id}.json"
        found.append(result.read(path) if path.is_file() else result.not_run(study))
    with about("--out"):
        written = studies.write(folder, found)
    console = out()
    console.print(text(", ".join(f"{count} {word}" for word, count in studies.counts(found).items())), soft_wrap=True)
    console.print(text(f"wrote {len(written)} files to {folder}"), soft_wrap=True)
    address = written[0].resolve().as_uri()
    if not (open_ and webbrowser.open(address)):
        console.print(text(f"open it with a browser: {address}"), soft_wrap=True)
