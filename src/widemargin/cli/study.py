"""`widemargin study`: the papers' figures and tables, rerun and compared."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widemargin.cli.console import notice, number, out, say, table, text
from widemargin.cli.devices import device as device_of
from widemargin.cli.errors import about, one_line_errors
from widemargin.cli.options import RUNNING, DataRoot, Device
from widemargin.cli.session import SESSION

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.report.schema import Json
    from widemargin.studies.schema import Study

app = typer.Typer(no_args_is_help=True, help="Rerun the papers' figures and tables, and compare.")


class ScaleOption(StrEnum):
    """The scale of a study."""

    smoke = "smoke"
    quick = "quick"
    budget = "budget"
    paper = "paper"


class EngineOption(StrEnum):
    """Execution of trials."""

    one_by_one = "one-by-one"
    population = "population"
    workers = "workers"
    ray = "ray"


Results = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder of the files <ID>.json.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A study of [bold]widemargin study list[/bold], such as E3.")]


def list_() -> None:
    """List the studies, each with the figure or table of the paper that it reruns."""
    from widemargin.studies import catalog

    rows = table("The studies")
    for column in ("id", "source", "what", "claims"):
        rows.add_column(column, no_wrap=column == "id", justify="right" if column == "claims" else "left")
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
    claims = table("Claims")
    claims.add_column("claim")
    claims.add_column("reported", justify="right")
    claims.add_column("tolerance", justify="right")
    for claim in study.claims:
        unit = " points" if claim.kind == "points" else ""
        numbers = ("order", "") if claim.reported is None else (f"{claim.reported:g}{unit}", f"± {claim.allowed:g}")
        claims.add_row(text(claim.text), *numbers)
    console.print(claims)
    console.print(_arms(study))
    scales = table("Scales")
    for column in ("scale", "minutes", "seeds", "search", "what is cut"):
        scales.add_column(
            column, no_wrap=column == "scale", justify="right" if column in ("minutes", "seeds") else "left"
        )
    for name, scale in study.scales.items():
        search = f"{scale.cells} cells" if scale.cells > 1 else "none"
        scales.add_row(name, f"{scale.minutes:g}", str(scale.seeds), search, text(scale.note))
    console.print(scales)
    for sentence in study.deviations:
        console.print(text(f"Not as the paper: {sentence}"), soft_wrap=True)


def run(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The studies to run, or [bold]all[/bold].")],
    scale: Annotated[ScaleOption, typer.Option(help="The scale of the runs.")] = ScaleOption.quick,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of final seeds; by default that of the scale.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, metavar="X", help="Start no trial after X minutes, counted over all studies.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Estimate the number of trials and the time; run nothing.")
    ] = False,
    engine: Annotated[
        EngineOption | None, typer.Option(help="Execution of the trials.", rich_help_panel=RUNNING)
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes of --engine workers.", rich_help_panel=RUNNING)
    ] = 1,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of a Ray cluster, for --engine ray.", rich_help_panel=RUNNING),
    ] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    runs: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of finished trials.", rich_help_panel=RUNNING)
    ] = Path("runs/studies"),
    results: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of <ID>.json; by default results, for smoke scale none."),
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
    name = engine or (EngineOption.workers if workers > 1 else EngineOption.one_by_one)
    if dry_run:
        out().print(_estimates([running.plan_of(study, scale.value, seeds) for study in studies], runs))
        return
    chosen = str(device_of(device))
    root = data_root or SESSION.get().data_root
    # Whole paths: processes on another machine have another current folder.
    context = TrialContext(
        device=chosen, root=None if root is None else root.resolve(), weights=(runs / "weights").resolve()
    )
    way = engines.engine(name.value, count=workers, address=address, device=chosen)
    start = time.monotonic()
    for study in studies:
        left = None if minutes is None else max(0.0, minutes - (time.monotonic() - start) / 60)
        found = running.run(study, scale.value, folder=runs, context=context, seeds=seeds, engine=way, minutes=left)
        out().print(_claims(found))
        if not found["complete"]:
            notice(f"{study.id} is not complete: the same command continues it")
        if results is None and scale is ScaleOption.smoke:
            continue  # it tries the machinery, and says nothing of the paper
        folder = Path("results") if results is None else results
        written = result.write(found, folder)
        if written is None:
            notice(f"{folder / study.id}.json holds a complete result of a larger scale, which is left as it is")
        else:
            say(f"wrote {written}")


def verdicts(results: Results = Path("results")) -> None:
    """Show the verdicts: the papers' numbers and the measured ones, for every study."""
    from widemargin.studies import catalog, result

    rows = table("Verdicts")
    for column in ("id", "claim", "paper", "ours", "verdict"):
        rows.add_column(column, no_wrap=column in ("id", "paper"))
    counts: dict[str, int] = {}
    for study in catalog.declared():
        path = results / f"{study.id}.json"
        found = result.read(path) if path.is_file() else result.not_run(study)
        for claim in found["claims"]:
            counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
            rows.add_row(study.id, text(claim["text"]), _paper(claim), _ours(claim), text(claim["verdict"]))
    console = out()
    console.print(rows)
    console.print(text(", ".join(f"{count} {word}" for word, count in counts.items())), soft_wrap=True)


for command, called in ((list_, "list"), (show, "show"), (run, "run"), (verdicts, "verdicts")):
    app.command(called)(one_line_errors(command))


def _claims(found: dict[str, Json]) -> Table:
    rows = table(f"{found['study']}: {found['title']}, {found['scale']} scale, {found['trials']} trials")
    for column in ("claim", "paper", "ours", "verdict"):
        rows.add_column(column)
    for claim in found["claims"]:
        rows.add_row(text(claim["text"]), _paper(claim), _ours(claim), text(claim["verdict"]))
    return rows


def _paper(claim: dict[str, Json]) -> str:
    return "order" if claim["reported"] is None else f"{claim['reported']:g}"


def _ours(claim: dict[str, Json]) -> str:
    if claim["measured"] is None:
        return "–"
    return number(claim["measured"]) + (f" ± {number(claim['sd'])}" if claim["sd"] is not None else ", one seed")


def _arms(study: Study) -> Table:
    rows = table("Arms")
    rows.add_column("arm", no_wrap=True)
    rows.add_column("searched")
    for arm in study.arms:
        searched = "; ".join(f"{key} {', '.join(map(str, values))}" for key, values in arm.search.items())
        rows.add_row(text(arm.name), text(searched))
    return rows


def _estimates(plans: list[Json], folder: Path) -> Table:
    from widemargin.studies.run import estimate

    rows = table(f"What is left at {plans[0].name} scale" if plans else "Nothing")
    for column in ("id", "search trials", "final trials", "done", "minutes"):
        rows.add_column(column, justify="right" if column != "id" else "left")
    total = 0.0
    for plan in plans:
        found = estimate(plan, folder)
        total += found.minutes
        how = "" if found.measured else ", declared"
        rows.add_row(
            plan.study.id, str(found.search), str(found.final), str(found.done), f"{number(found.minutes)}{how}"
        )
    rows.add_row("all", "", "", "", number(total))
    return rows
