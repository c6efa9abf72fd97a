"""Options that several commands take, each with its help, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NETWORK, DATA, RUNNING = "Network", "Data", "Running"

Model = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="A name of [bold]widemargin models[/bold], or module:function, a function of yours that returns an "
        "nn.Module; it is imported from the current directory as well.",
        rich_help_panel=NETWORK,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the network, such as size=8 or 'hidden=(64, 64)'; as often as needed.",
        rich_help_panel=NETWORK,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Trained weights, a .safetensors file; without it, random ones.", rich_help_panel=NETWORK
    ),
]
DataName = Annotated[
    str, typer.Option("--data", metavar="NAME", help="A name of [bold]widemargin data[/bold].", rich_help_panel=DATA)
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="The folder that data sets lie in; else the one that WIDEMARGIN_DATA names.",
        rich_help_panel=DATA,
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", help="Samples at a time.", rich_help_panel=RUNNING)]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="cpu, cuda, cuda:1, mps; auto takes a GPU where there is one.", rich_help_panel=RUNNING
    ),
]
