"""Options that several commands share, each with its help, and the values of the global ones."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.models import OptionInfo


@dataclass(frozen=True, kw_only=True)
class Session:
    """Options that are given before the command."""

    data_root: Path | None = None
    verify: bool = True
    traceback: bool = False


SESSION: ContextVar[Session] = ContextVar("session", default=Session())  # noqa: B039, a frozen value


def option(
    help: str,
    metavar: str | None = None,
    *,
    panel: str | None = None,
    flag: str | None = None,
    min: float | int | None = None,
    max: float | int | None = None,
) -> OptionInfo:
    """An option of a command; `flag` is its name where that is not the name of the parameter."""
    flags = () if flag is None else (flag,)
    made: OptionInfo = typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, min=min, max=max)
    return made


network_option = partial(option, panel="Network")
data_option = partial(option, panel="Data")
margin_option = partial(option, panel="Margin")
running_option = partial(option, panel="Running")
result_option = partial(option, panel="Results")

DataSplit = Literal["test", "train", "all"]
Number = float | None

MODEL = network_option(
    "A network listed by [bold]widemargin models[/bold], or module:function: your own function that returns an "
    "nn.Module. The module is imported, so its code runs; it is looked for in the current directory first, then on "
    "PYTHONPATH and among the installed packages.",
    "NAME",
)
DATA = data_option(
    "A data set listed by [bold]widemargin data[/bold], or your own: a .npz, .csv or .parquet file, a folder of images "
    "by class, or module:function.",
    "NAME|FILE",
    flag="--data",
)
Model = Annotated[str, MODEL]
Set = Annotated[
    list[str] | None,
    network_option(
        "A setting of the network, such as size=8 or 'hidden=(64, 64)'; can be repeated.", "KEY=VALUE", flag="--set"
    ),
]
Weights = Annotated[
    Path | None, network_option("Trained weights, a .safetensors file; by default random weights.", "FILE")
]
Seed = Annotated[int, running_option("Seed of random weights and random choices.", "N", min=0)]
DataName = Annotated[str, DATA]
DATA_ROOT = "The folder of the data sets; by default $WIDEMARGIN_DATA."
DataRoot = Annotated[Path | None, data_option(DATA_ROOT, "FOLDER", flag="--data-root")]
Split = Annotated[DataSplit, data_option("The samples to use: those of the test set, of the training set, or all.")]
Test = Annotated[
    str | None,
    data_option("Your test samples, as --data; by default a fifth of each class of --data, drawn by --seed.", "FILE"),
]
Label = Annotated[
    str | None, data_option("The column of labels in a table; by default y, label, target or class.", "COLUMN")
]
At = Annotated[
    list[str] | None,
    margin_option(
        "Where margins are measured: input, output or the name of a module; can be repeated. "
        "By default the input, or the embedding of tokens.",
        "PLACE",
    ),
]
BatchSize = Annotated[int, running_option("Samples per batch.", "N", min=1)]
Device = Annotated[str, running_option("cpu, cuda, cuda:1, mps, or auto: a GPU if there is one.", "NAME")]
Folder = Annotated[Path, result_option("Folder of the results; existing files are replaced.", "FOLDER", flag="--out")]
ResultsFolder = Annotated[Path, option("Folder with the results of the studies, <ID>.json.", "FOLDER")]
Open = Annotated[bool, result_option("Open the page in a browser.", "", flag="--open")]
