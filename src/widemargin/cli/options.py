"""Options that several commands share, each with its help, and the values of the global ones."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

NETWORK, DATA, MARGIN, RUNNING, RESULTS = "Network", "Data", "Margin", "Running", "Results"


@dataclass(frozen=True, kw_only=True)
class Session:
    """Options that are given before the command."""

    data_root: Path | None = None
    traceback: bool = False


SESSION: ContextVar[Session] = ContextVar("session", default=Session())  # noqa: B039, a frozen value


class DataSplit(StrEnum):
    """The parts of a data set."""

    test = "test"
    train = "train"


def option(
    help: str,
    panel: str | None = None,
    metavar: str | None = None,
    *,
    flag: str | None = None,
    min: float | int | None = None,
    max: float | int | None = None,
) -> OptionInfo:
    """An option of a command; `flag` is its name where that is not the name of the parameter."""
    flags = () if flag is None else (flag,)
    made: OptionInfo = typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, min=min, max=max)
    return made


Model = Annotated[
    str,
    option(
        "A network of [bold]widemargin models[/bold], or module:function, your own function that returns an "
        "nn.Module; the current directory is searched too.",
        NETWORK,
        "NAME",
    ),
]
Set = Annotated[
    list[str] | None,
    option(
        "A setting of the network, such as size=8 or 'hidden=(64, 64)'; can be repeated.",
        NETWORK,
        "KEY=VALUE",
        flag="--set",
    ),
]
Weights = Annotated[
    Path | None, option("Trained weights, a .safetensors file; by default random weights.", NETWORK, "FILE")
]
Seed = Annotated[int, option("Seed of random weights and random choices.", RUNNING, "N", min=0)]
DataName = Annotated[str, option("A data set of [bold]widemargin data[/bold].", DATA, "NAME", flag="--data")]
DataRoot = Annotated[
    Path | None, option("The folder of the data sets; by default $WIDEMARGIN_DATA.", DATA, "FOLDER", flag="--data-root")
]
Split = Annotated[DataSplit, option("The part of the data.", DATA)]
At = Annotated[
    list[str] | None,
    option(
        "Where margins are taken: input, output or the name of a module; can be repeated. "
        "By default the input, or the embedding of tokens.",
        MARGIN,
        "PLACE",
    ),
]
BatchSize = Annotated[int, option("Samples per batch.", RUNNING, "N", min=1)]
Device = Annotated[str, option("cpu, cuda, cuda:1, mps, or auto: a GPU if there is one.", RUNNING, "NAME")]
Folder = Annotated[Path, option("Folder of the results; existing files are replaced.", RESULTS, "FOLDER", flag="--out")]
ResultsFolder = Annotated[Path, option("The folder of the files <ID>.json.", None, "FOLDER")]
Open = Annotated[bool, option("Open the page in a browser.", RESULTS, "", flag="--open")]
