"""`widemargin study`: the papers' figures and tables, rerun and compared."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from widemargin._io.files import check_writable
from widemargin.cli.console import notice, number, out, say, table, text
from widemargin.cli.errors import about, one_line_errors
from widemargin.cli.inputs import find_device
from widemargin.cli.options import SESSION, DataRoot, Device, Number, ResultsFolder, option, running_option

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.report.schema import Json
    from widemargin.studies.schema import Study

app = typer.Typer(no_args_is_help=True, help="Rerun the papers' figures and tables, and compare.")


Id = Annotated[str, typer.Argument(metavar="ID", help="A study of [bold]widemargin study list[/bold], such as E3.")]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID…", help="Studies; [bold]all[/bold]: the papers', [bold]own[/bold]: our own.")
]


def list_() -> None:
    """List the studies: those of the papers' figures and tables, then our own."""
    from widemargin.studies import catalog

    studies = (*catalog.declared(), *catalog.own())
    rows = [(study.id, study.source, study.title, len(study.claims)) for study in studies]
    columns = ("id", "source", "title", "claims")
    out().print(table("The studies", *columns, rows=rows, right=["claims"], no_wrap=["id"]))


def show(id: Id) -> None:
    """Show the arms, claims and scales of a study."""
    from widemargin.report.goals import is_own
    from widemargin.report.studies import paper
    from widemargin.studies import catalog

    with about("ID"):
        study = catalog.study(id)
    console = out()
    console.print(text(f"{study.id}: {study.title} ({study.source})", "bold"), soft_wrap=True)
    console.print(text(study.question), soft_wrap=True)
    own = is_own(study.source)
    claims = []
    for claim in study.claims:
        unit = " points" if claim.kind == "points" and claim.reported is not None else ""
        reported = paper({"reported": claim.reported, "side": claim.side}) + unit
        allowed = () if own else ("" if claim.allowed is None else f"± {claim.allowed:g}",)
        claims.append((claim.text, reported, *allowed))
    numeric = ("goal",) if own else ("reported", "tolerance")
    console.print(table("Claims", "claim", *numeric, rows=claims, right=numeric, no_wrap=numeric))
    searched = [[f"{key} {', '.join(map(str, values))}" for key, values in arm.search.items()] for arm in study.arms]
    arms = [(arm.name, "; ".join(texts)) for arm, texts in zip(study.arms, searched, strict=True)]
    console.print(table("Arms", "arm", "searched", rows=arms, no_wrap=["arm"]))
    scales = [
        (name, f"{scale.minutes:g}", scale.seeds, f"{scale.cells} cells" if scale.cells > 1 else "none", scale.note)
        for name, scale in study.scales.items()
    ]
    columns = ("scale", "minutes", "seeds", "search", "what is reduced")
    console.print(table("Scales", *columns, rows=scales, right=["minutes", "seeds"], no_wrap=["scale"]))
    for sentence in study.deviations:
        console.print(text(f"{'Note' if own else 'Not as the paper'}: {sentence}"), soft_wrap=True)


def run(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID…", help="The studies to run; [bold]all[/bold]: of the papers, [bold]own[/bold]: ours."
        ),
    ],
    scale: Annotated[
        Literal["smoke", "quick", "budget", "paper"],
        option("smoke: a test of the code; quick: minutes; budget: the paper's data in less time; paper: in full."),
    ] = "quick",
    seeds: Annotated[int | None, option("Number of final seeds; by default that of the scale.", "N", min=1)] = None,
    minutes: Annotated[Number, option("Start no trial after X minutes, counted over all studies.", "X", min=0)] = None,
    reuse: Annotated[
        bool, option("Run no trial again whose row is in the stored result: to add seeds.", "", flag="--reuse")
    ] = False,
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
        Path | None, option("Write <ID>.json to this folder; by default results, at smoke scale nowhere.", "FOLDER")
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

    from widemargin.data.files import MissingDataError
    from widemargin.studies import engines
    from widemargin.studies import run as running
    from widemargin.studies.trial import TrialContext

    studies = _studies(ids, by_value=True)
    folder = results or (None if scale == "smoke" else Path("results"))  # smoke says nothing about the paper
    name = engine or ("workers" if workers > 1 else "one-by-one")
    if dry_run:
        out().print(_estimates([running.plan_of(study, scale, seeds) for study in studies], runs))
        return
    check_writable("--runs", runs)  # before the work, not after it
    if folder is not None:
        check_writable("--results", folder)
    chosen = str(find_device(device))
    root = data_root or SESSION.get().data_root
    # Absolute paths: processes on another machine have another current folder.
    places = {"root": None if root is None else root.resolve(), "weights": (runs / "weights").resolve()}
    context = TrialContext(device=chosen, **places)
    executor = engines.engine(name, count=workers, address=address, device=chosen)
    start, waiting = time.monotonic(), list[str]()
    for study in studies:
        left = None if minutes is None else max(0.0, minutes - (time.monotonic() - start) / 60)
        limits = partial(running.run, study, scale, seeds=seeds, minutes=left, earlier=_earlier(study, folder, reuse))
        try:
            found = limits(folder=runs, context=context, engine=executor, log=notice)
        except (KeyboardInterrupt, SystemExit):
            notice(f"{study.id} was stopped, its finished trials are kept: the same command continues it")
            raise
        except MissingDataError as error:
            if len(studies) == 1:
                raise
            notice(f"{study.id} is not run, no data: {error}")
            continue
        if found["rows"]:
            _show_and_write(study, found, folder)
        else:
            waiting.append(study.id)
    if waiting:
        notice(f"no result yet of {', '.join(waiting)}: the same command continues")


def _earlier(study: Study, folder: Path | None, reuse: bool) -> dict[str, Json] | None:
    """The stored result whose trials are taken over with --reuse."""
    from widemargin.studies import result

    path = (folder or Path("results")) / f"{study.id}.json"
    return result.read(path) if reuse and path.is_file() else None


def _show_and_write(study: Study, found: dict[str, Json], folder: Path | None) -> None:
    """Print the claims of a run, and write its result."""
    from widemargin.report.goals import is_own
    from widemargin.studies import result

    title = f"{study.id}: {study.title}, {found['scale']} scale, {found['trials']} trials"
    columns = GOALS if is_own(study.source) else CELLS
    rows = [_cells(claim, found) for claim in found["claims"]]
    out().print(table(title, *columns, rows=rows, no_wrap=columns[1:3]))
    if not found["complete"]:
        notice(f"{study.id} is not complete: the same command continues it")
    if folder is None:
        return
    written = result.write(found, folder)
    if written is None:
        notice(f"{folder / study.id}.json holds a complete result of this scale or a larger one: it is left as it is")
    else:
        say(f"wrote {written}")


def judge(
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID…", help="The studies; [bold]all[/bold]: of the papers, [bold]own[/bold]: ours."),
    ],
    results: ResultsFolder = Path("results"),
) -> None:
    """Compute the verdicts of stored results again, from their rows; nothing is run.

    The claims are those of today's declarations. The verdicts that the files
    had under the first rules are kept in them.
    """
    from widemargin._io.files import write_json
    from widemargin.report.goals import is_own, study_verdict
    from widemargin.studies import result

    rows = []
    for study in _studies(ids):
        path = results / f"{study.id}.json"
        if not path.is_file():
            continue
        stored = result.read(path)
        found = result.rejudge(study, stored)
        write_json(path, found)
        share = found["share"]
        verdicts = (study_verdict({**found, **stored}), study_verdict(found))
        rows.append((study.id, *verdicts, "" if is_own(study.source) else f"{share['hold']} of {share['ran']}"))
    out().print(table("Judged again", "id", "before", "now", "claims that hold", rows=rows, no_wrap=["id"]))


def verdicts(results: ResultsFolder = Path("results")) -> None:
    """Show the verdicts: the papers' numbers and the measured ones, for every study."""
    from widemargin.report.studies import claim_counts, counts

    found = results_in(results)
    console = out()
    for title, some, columns in (
        ("Verdicts", found, CELLS),
        ("Our own studies", results_in(results, own=True), GOALS),
    ):
        rows = [(one["study"], *_cells(claim, one)) for one in some for claim in one["claims"]]
        if rows:
            console.print(table(title, "id", *columns, rows=rows, no_wrap=["id", *columns[1:3]]))
    for name, words in (("Studies", counts(found)), ("Claims", claim_counts(found))):
        said = ", ".join(f"{count} {word}" for word, count in words.items())
        console.print(text(f"{name}: {said}"), soft_wrap=True)


for command, called in ((list_, "list"), (show, "show"), (run, "run"), (judge, "judge"), (verdicts, "verdicts")):
    app.command(called)(one_line_errors(command))


def results_in(folder: Path, *, own: bool = False) -> list[dict[str, Json]]:
    """The results of the papers' studies, or of our own, in order; one without a file in `folder` was not run."""
    from widemargin.studies import catalog, result

    if not folder.is_dir():
        raise NotADirectoryError(f"--results is {str(folder)!r}, which is not a folder")
    found = []
    for study in catalog.own() if own else catalog.declared():
        path = folder / f"{study.id}.json"
        one = result.read(path) if path.is_file() else result.not_run(study)
        found.append(one if "word" in one else result.rejudge(study, one))  # a file of an earlier release
    return found


def _studies(ids: list[str], *, by_value: bool = False) -> list[Study]:
    """The studies of these ids; "all" are those of the papers, in their order or by their value, "own" our own."""
    from widemargin.studies import catalog

    groups = {"all": catalog.declared, "own": catalog.own}
    with about("ID"):
        if by_value and ids == ["all"]:
            return sorted(catalog.declared(), key=lambda study: catalog.BY_VALUE.index(study.id))
        return [study for id in ids for study in (groups[id]() if id in groups else [catalog.study(id)])]


CELLS = ("claim", "paper", "ours ± 95 %", "verdict")
GOALS = ("claim", "goal", *CELLS[2:])
"""The columns of claims; ± is half of the 95 % interval of a mean over seeds."""


def _cells(claim: dict[str, Json], result: dict[str, Json]) -> tuple[str, ...]:
    """The claim, the paper's number or the goal, the measured one and the verdict."""
    from widemargin.report.goals import claim_verdict, is_own
    from widemargin.report.studies import ours, paper

    return claim["text"], paper(claim), ours(claim), claim_verdict(claim, own=is_own(result["source"]))


def _estimates(plans: list[Json], folder: Path) -> Table:
    from widemargin.studies.run import estimate

    found = {plan.study.id: estimate(plan, folder) for plan in plans}
    rows = [
        (id, one.search, one.final, one.done, number(one.minutes) + ("" if one.measured else ", declared"))
        for id, one in found.items()
    ]
    total = ("all", "", "", "", number(sum(one.minutes for one in found.values())))
    counts = ("search trials", "final trials", "done", "minutes")
    title = f"Trials left at {plans[0].name} scale" if plans else "No trials"
    return table(title, "id", *counts, rows=[*rows, total], right=counts)
