"""`widemargin study`: the papers' figures and tables, rerun and compared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from widemargin.cli.console import notice, number, out, say, table, text
from widemargin.cli.errors import about, one_line_errors
from widemargin.cli.inputs import find_device
from widemargin.cli.options import SESSION, DataRoot, Device, Number, ResultsFolder, option, running_option

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from widemargin.report.schema import Json
    from widemargin.studies.schema import Study

app = typer.Typer(no_args_is_help=True, help="Rerun the papers' figures and tables, and compare.")


Id = Annotated[str, typer.Argument(metavar="ID", help="A study of [bold]widemargin study list[/bold], such as E3.")]


def list_() -> None:
    """List the studies, each with the figure or table of the paper that it reruns."""
    from widemargin.studies import catalog

    rows = table("The studies", "id", "source", "what", "claims", right=["claims"], no_wrap=["id"])
    for study in catalog.declared():
        rows.add_row(study.id, text(study.source), text(study.title), str(len(study.claims)))
    out().print(rows)


def show(id: Id) -> None:
    """Show the arms, claims and scales of a study."""
    from widemargin.studies import catalog

    with about("ID"):
        study = catalog.study(id)
    console = out()
    console.print(text(f"{study.id}: {study.title} ({study.source})", "bold"), soft_wrap=True)
    console.print(text(study.question), soft_wrap=True)
    claims = table("Claims", "claim", "reported", "tolerance", right=["reported", "tolerance"])
    for claim in study.claims:
        unit = " points" if claim.kind == "points" else ""
        numbers = ("order", "") if claim.reported is None else (f"{claim.reported:g}{unit}", f"± {claim.allowed:g}")
        claims.add_row(text(claim.text), *numbers)
    console.print(claims)
    console.print(_arms(study))
    columns = ("scale", "minutes", "seeds", "search", "what is cut")
    scales = table("Scales", *columns, right=["minutes", "seeds"], no_wrap=["scale"])
    for name, scale in study.scales.items():
        search = f"{scale.cells} cells" if scale.cells > 1 else "none"
        scales.add_row(name, f"{scale.minutes:g}", str(scale.seeds), search, text(scale.note))
    console.print(scales)
    for sentence in study.deviations:
        console.print(text(f"Not as the paper: {sentence}"), soft_wrap=True)


def run(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The studies to run, or [bold]all[/bold].")],
    scale: Annotated[
        Literal["smoke", "quick", "budget", "paper"],
        option("smoke: seconds, a test of the code; quick: minutes; budget: hours; paper: as in the paper."),
    ] = "quick",
    seeds: Annotated[int | None, option("Number of final seeds; by default that of the scale.", "N", min=1)] = None,
    minutes: Annotated[Number, option("Start no trial after X minutes, counted over all studies.", "X", min=0)] = None,
    dry_run: Annotated[
        bool, option("Estimate the number of trials and the time; run nothing.", "", flag="--dry-run")
    ] = False,
    engine: Annotated[
        Literal["one-by-one", "population", "workers", "ray"] | None,
        running_option(
            "one-by-one, population (many networks as one program), workers (processes) or ray; by default "
            "one-by-one, or workers with --workers.",
            "NAME",
        ),
    ] = None,
    workers: Annotated[int, running_option("Processes of --engine workers.", "N", min=1)] = 1,
    address: Annotated[str | None, running_option("Address of a Ray cluster, for --engine ray.", "ADDRESS")] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    runs: Annotated[Path, running_option("Folder of finished trials.", "FOLDER")] = Path("runs/studies"),
    results: Annotated[
        Path | None, option("Folder of <ID>.json; by default results, for smoke scale none.", "FOLDER")
    ] = None,
) -> None:
    """Run studies and compare with the papers.

    Finished trials are kept: an interrupted run continues where it stopped, and
    a repeated run has nothing left to do.

    [bold]Examples[/bold]

      widemargin study run E3 --scale smoke
      widemargin study run E3 O2 --scale budget --data-root ~/data --device cuda
    """
    import time

    from widemargin.studies import catalog, engines, result
    from widemargin.studies import run as running
    from widemargin.studies.trial import TrialContext

    with about("ID"):
        studies = catalog.declared() if ids == ["all"] else [catalog.study(id) for id in ids]
    name = engine or ("workers" if workers > 1 else "one-by-one")
    if dry_run:
        out().print(_estimates([running.plan_of(study, scale, seeds) for study in studies], runs))
        return
    chosen = str(find_device(device))
    root = data_root or SESSION.get().data_root
    # Absolute paths: processes on another machine have another current folder.
    places = {"root": None if root is None else root.resolve(), "weights": (runs / "weights").resolve()}
    context = TrialContext(device=chosen, **places)
    executor = engines.engine(name, count=workers, address=address, device=chosen)
    start = time.monotonic()
    for study in studies:
        left = None if minutes is None else max(0.0, minutes - (time.monotonic() - start) / 60)
        found = running.run(study, scale, folder=runs, context=context, seeds=seeds, engine=executor, minutes=left)
        out().print(_claims(found))
        if not found["complete"]:
            notice(f"{study.id} is not complete: the same command continues it")
        if results is None and scale == "smoke":
            continue  # a test of the code, which says nothing about the paper
        folder = Path("results") if results is None else results
        written = result.write(found, folder)
        if written is None:
            notice(f"{folder / study.id}.json holds a complete result of a larger scale, which is left as it is")
        else:
            say(f"wrote {written}")


def verdicts(results: ResultsFolder = Path("results")) -> None:
    """Show the verdicts: the papers' numbers and the measured ones, for every study."""
    rows = table("Verdicts", "id", "claim", "paper", "ours", "verdict", no_wrap=["id", "paper"])
    counts: Counter[str] = Counter()
    for found in results_in(results):
        for claim in found["claims"]:
            counts[claim["verdict"]] += 1
            rows.add_row(found["study"], *_cells(claim))
    console = out()
    console.print(rows)
    console.print(text(", ".join(f"{count} {word}" for word, count in counts.items())), soft_wrap=True)


for command, called in ((list_, "list"), (show, "show"), (run, "run"), (verdicts, "verdicts")):
    app.command(called)(one_line_errors(command))


def results_in(folder: Path) -> list[dict[str, Json]]:
    """The results of all studies, in order; one without a file in `folder` was not run."""
    from widemargin.studies import catalog, result

    paths = [(study, folder / f"{study.id}.json") for study in catalog.declared()]
    return [result.read(path) if path.is_file() else result.not_run(study) for study, path in paths]


def _claims(found: dict[str, Json]) -> Table:
    title = f"{found['study']}: {found['title']}, {found['scale']} scale, {found['trials']} trials"
    rows = table(title, "claim", "paper", "ours", "verdict")
    for claim in found["claims"]:
        rows.add_row(*_cells(claim))
    return rows


def _cells(claim: dict[str, Json]) -> tuple[Text, str, str, Text]:
    """The claim, the paper's number, the measured one and the verdict."""
    from widemargin.report.studies import ours, paper

    return text(claim["text"]), paper(claim), ours(claim), text(claim["verdict"])


def _arms(study: Study) -> Table:
    rows = table("Arms", "arm", "searched", no_wrap=["arm"])
    for arm in study.arms:
        searched = "; ".join(f"{key} {', '.join(map(str, values))}" for key, values in arm.search.items())
        rows.add_row(text(arm.name), text(searched))
    return rows


def _estimates(plans: list[Json], folder: Path) -> Table:
    from widemargin.studies.run import estimate

    counts = ("search trials", "final trials", "done", "minutes")
    rows = table(f"What is left at {plans[0].name} scale" if plans else "Nothing", "id", *counts, right=counts)
    total = 0.0
    for plan in plans:
        found = estimate(plan, folder)
        total += found.minutes
        how = "" if found.measured else ", declared"
        done = map(str, (found.search, found.final, found.done))
        rows.add_row(plan.study.id, *done, f"{number(found.minutes)}{how}")
    rows.add_row("all", "", "", "", number(total))
    return rows
