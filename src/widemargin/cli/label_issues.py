"""`widemargin label-issues`: the labels of a data set that are most likely wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from widemargin import registry
from widemargin._io.optional import EXTRAS, is_installed
from widemargin.cli import options
from widemargin.cli.console import notice, number, out, share, table, text, wrote
from widemargin.cli.inputs import check_fits, check_folder, find_device, in_memory, make_folder, with_sizes
from widemargin.cli.networks import parse_settings, resolve
from widemargin.cli.options import data_option, network_option, option, result_option
from widemargin.cli.sources import DataSource
from widemargin.registry import LossName

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table
    from torch import nn

    from widemargin.data import Data, Samples
    from widemargin.diagnostics import LabelIssues
    from widemargin.report.schema import Json

training_option = partial(option, panel="Training")


def label_issues(
    data: options.DataName,
    model: Annotated[
        str | None,
        network_option(
            "A network listed by [bold]widemargin models[/bold], or module:function; by default a small one that fits "
            "images and tables.",
            "NAME",
        ),
    ] = None,
    set_: options.Set = None,
    label: options.Label = None,
    split: Annotated[
        options.DataSplit | None,
        data_option("The samples to rank; by default the training set, of your own files all samples."),
    ] = None,
    data_root: options.DataRoot = None,
    folds: Annotated[
        int,
        training_option("Networks to train, each without one part of the data; 1: one, on all of it.", "N", min=1),
    ] = 4,
    loss: Annotated[LossName, training_option("The loss, with its default settings.", "NAME")] = "cross-entropy",
    lr: Annotated[float, training_option("Learning rate of AdamW.", "X")] = 1e-3,
    epochs: Annotated[int, training_option("Passes over the data.", "N", min=1)] = 20,
    batch_size: options.BatchSize = 64,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    show: Annotated[int, result_option("Print the N most suspicious labels.", "N", min=0)] = 10,
    on_page: Annotated[int, result_option("Show the N most suspicious samples on the page.", "N", min=1)] = 120,
    folder: options.Folder = Path("runs/label-issues"),
) -> None:
    r"""Rank the labels of a data set by how likely they are wrong.

    Trains networks by cross-validation, and compares each label with the
    predictions for its sample, out of sample and early in training. Prints the
    most suspicious labels, writes label_issues.csv (all of them, the most
    suspicious first), summary.json and page.html with the samples.

    [bold]Examples[/bold]

    The training set of digits, with a small network:

      widemargin label-issues --data digits

    Your own table, with the labels in the column species:

      widemargin label-issues --data iris.csv --label species

    Your own network, build() in nets.py, one training without folds:

      widemargin label-issues --data cifar10 --model nets:build --folds 1
    """
    from widemargin import training
    from widemargin.diagnostics.label_issues import label_issues as find

    check_folder(folder)
    chosen = find_device(device)
    source = DataSource(data=data, label=label, seed=seed, root=data_root)
    source = replace(source, split=split or ("all" if source.is_own else "train"))
    loaded = source.load()
    samples = in_memory(source.part(loaded), data)
    settings = parse_settings(set_ or [])
    if model is not None and source.is_own:
        settings = with_sizes(model, settings, loaded)
    build = None if model is None else _builder(model, settings, samples, source, loaded)
    if model is None and set_:
        raise ValueError(f"--set is {set_[0]!r}, a setting of a network, but there is no --model")
    make_folder(folder)
    found = find(
        build,
        samples,
        folds,
        loss=registry.loss({"name": loss}),
        epochs=epochs,
        optimizer=training.AdamW(lr=lr),
        batch_size=batch_size,
        seed=seed,
        classes=loaded.classes,
        device=chosen,
    )
    network = model or "small network"
    found.settings.update({"data": data, "split": source.split, "model": network, "device": str(chosen)})
    written = [*found.write(folder)]
    if is_installed(*EXTRAS["report"]):
        written.append(found.page(folder / "page.html", count=on_page, title=f"Labels of {data}"))
    else:
        notice("no page.html, which needs more packages: pip install 'widemargin[report]'")
    console = out()
    console.print(text(_sentence(found, data), "bold"))
    if show:
        console.print(_rows(found, show))
    wrote(*written)


def _builder(
    model: str, settings: dict[str, Json], samples: Samples, source: DataSource, loaded: Data
) -> Callable[[], nn.Module]:
    """A function that builds the network of --model with the present seed of torch, after checking that it fits."""
    import torch

    network = resolve(model, settings=settings)
    check_fits(network, samples, model, source.data, loaded.classes if source.is_own else ())
    return lambda: resolve(model, settings=settings, seed=torch.initial_seed())


def _sentence(found: LabelIssues, data: str) -> str:
    count = len(found.suspects)
    low, high = map(share, found.expected_precision)
    between = low if low == high else f"{low} to {high}"
    expected = f"; {between} of them are expected to be wrong" if count else ""
    return f"{data}: {count:,} of {len(found):,} labels are suspects{expected}"


def _rows(found: LabelIssues, count: int) -> Table:
    columns = ("index", "given", "suggested", "margin", "wrong")
    rows = [
        (row["index"], row["given"], row["suggested"], number(row["margin"]), share(row["wrong"]))
        for row in found.rows(count)
    ]
    return table(
        "The most suspicious labels, and the probability that they are wrong", *columns, rows=rows, right=columns
    )
