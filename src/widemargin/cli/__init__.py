"""The command `widemargin`: a file per command, each of which imports torch only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemargin import __version__
from widemargin.cli import bounds, data, demo, measure, models, picture, report, study, train
from widemargin.cli.errors import one_line_errors
from widemargin.cli.session import SESSION, Session

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
    app(prog_name="widemargin")


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"widemargin {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def common(
    data_root: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The folder that data sets lie in; else the one that WIDEMARGIN_DATA names."
        ),
    ] = None,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", metavar="", envvar="WIDEMARGIN_TRACEBACK", help="Show where in the code an error arose."
        ),
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Measure the classification margins of deep networks: how far each decision is from being another one.

    A first measurement, of a network with random weights:

      widemargin measure --model sokolic-mlp --set inputs=64 --data digits
    """
    SESSION.set(Session(data_root=data_root, traceback=traceback))


COMMANDS = (
    measure.measure,
    train.train,
    bounds.bounds,
    picture.picture,
    demo.demo,
    report.report,
    models.models,
    data.data,
)
for command in COMMANDS:
    app.command()(one_line_errors(command))
app.add_typer(study.app, name="study")
