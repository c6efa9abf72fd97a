"""The command `widemargin`: one file per command; torch is imported only when a command runs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from widemargin import __version__
from widemargin.cli import bounds, data, demo, explain, label_issues, measure, models, picture, report, study, train
from widemargin.cli.console import allow_any_terminal
from widemargin.cli.errors import one_line_errors
from widemargin.cli.options import DATA_ROOT, SESSION, Session, option

app = typer.Typer(
    name="widemargin",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command with the arguments of the process."""
    allow_any_terminal()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # files and workers end on the way out
    app(prog_name="widemargin")


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"widemargin {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def common(
    data_root: Annotated[Path | None, option(DATA_ROOT, "FOLDER")] = None,
    no_verify: Annotated[
        bool,
        typer.Option("--no-verify", metavar="", help="Read data files that differ from their original release."),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", metavar="", envvar="WIDEMARGIN_TRACEBACK", help="Show the traceback of an error."),
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Measure, train for and bound the margins of deep networks: how far is an input from the decision boundary?

    [bold]Examples[/bold]

    Five losses compared on 200 images, and a measurement of a network with
    random weights:

      widemargin demo --open
      widemargin measure --model sokolic-mlp --set inputs=64 --data digits

    [bold]Papers[/bold]

    elsayed: Large Margin Deep Networks for Classification (2018)
    odn: Optimal margin Distribution Network (2019)
    sokolic: Robust Large Margin Deep Neural Networks (2017)
    farhang: Investigating Generalization by Controlling Normalized Margin (2022)
    """
    SESSION.set(Session(data_root=data_root, verify=not no_verify, traceback=traceback))


COMMANDS = (
    demo.demo,
    measure.measure,
    train.train,
    explain.explain,
    label_issues.label_issues,
    bounds.bounds,
    picture.picture,
    models.models,
    data.data,
)
for command in COMMANDS:
    app.command()(one_line_errors(command))
app.add_typer(study.app, name="study")
app.command()(one_line_errors(report.report))
