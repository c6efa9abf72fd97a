"""`widemargin report`: the scoreboard of the studies, and a page for each."""

from __future__ import annotations

from pathlib import Path

from widemargin._io.files import check_writable
from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli.console import out, text
from widemargin.cli.demo import open_page
from widemargin.cli.options import Folder, Open, ResultsFolder
from widemargin.cli.study import results_in


def report(results: ResultsFolder = Path("results"), folder: Folder = Path("report"), open_: Open = False) -> None:
    """Write the scoreboard of the studies: reported values, measured values and verdicts.

    index.html has a row for every study; each study with a result has its own
    page, with the paper's figure redrawn from the measured values.
    """
    from widemargin.report import studies

    check_installed(*EXTRAS["report"])
    found = results_in(results)
    check_writable("--out", folder)
    written = studies.write(folder, found, results_in(results, own=True))
    console = out()
    console.print(text(", ".join(f"{count} {word}" for word, count in studies.counts(found).items())), soft_wrap=True)
    console.print(text(f"wrote {len(written)} files to {folder}"), soft_wrap=True)
    open_page(written[0], open_)
