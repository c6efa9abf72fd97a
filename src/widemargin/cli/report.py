"""`widemargin report`: the scoreboard of the studies, and a page for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli.console import out, text
from widemargin.cli.demo import open_page
from widemargin.cli.errors import about
from widemargin.cli.options import Folder, Open, option


def report(
    results: Annotated[Path, option("The folder of the files <ID>.json.", None, "FOLDER")] = Path("results"),
    folder: Folder = Path("report"),
    open_: Open = False,
) -> None:
    """Write the scoreboard of the studies: reported values, measured values and verdicts.

    index.html has a row for every study; each study with a result has its own
    page, with the paper's figure redrawn from the measured values.
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
    open_page(written[0], open_)
