"""`widemargin measure`: the margins of a network on a data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widemargin import __version__
from widemargin._io.optional import EXTRAS, check_installed, is_installed
from widemargin.cli import arms, statistics
from widemargin.cli.console import notice, out, printable, text
from widemargin.cli.devices import device as device_of
from widemargin.cli.errors import about
from widemargin.cli.networks import parse_settings, resolve
from widemargin.cli.options import DATA, NETWORK, BatchSize, DataName, DataRoot, Device, Model, Set, Weights
from widemargin.cli.session import SESSION

if TYPE_CHECKING:
    from torch import nn

    from widemargin.certify.bracket import Bracket
    from widemargin.data import Data
    from widemargin.margins import Measurement
    from widemargin.report.schema import Result

MARGIN, RESULTS = "Margin", "Results"


class Split(StrEnum):
    """The parts of a data set."""

    test = "test"
    train = "train"


class ReadAs(StrEnum):
    """What f_i is."""

    logits = "logits"
    softmax = "softmax"


def measure(
    model: Model,
    data: DataName,
    set_: Set = None,
    weights: Weights = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the random weights.", rich_help_panel=NETWORK)
    ] = 0,
    split: Annotated[Split, typer.Option(help="Which part of the data.", rich_help_panel=DATA)] = Split.test,
    data_root: DataRoot = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Where the distance is taken: input, output or the name of a module; as often as needed. "
            "By default the input, or the embedding of tokens.",
            rich_help_panel=MARGIN,
        ),
    ] = None,
    p: Annotated[
        float, typer.Option(metavar="P", help="The l_p norm of the distance, from 1 to inf.", rich_help_panel=MARGIN)
    ] = 2.0,
    classes: Annotated[
        str,
        typer.Option(
            metavar="N|all",
            help="Against how many of the strongest other classes; the nearest of them counts.",
            rich_help_panel=MARGIN,
        ),
    ] = "1",
    read_as: Annotated[
        ReadAs, typer.Option(help="The scores themselves, or their softmax probabilities.", rich_help_panel=MARGIN)
    ] = ReadAs.logits,
    batch_size: BatchSize = 256,
    device: Device = "auto",
    folder: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FOLDER", help="Where the files go; those there are replaced.", rich_help_panel=RESULTS
        ),
    ] = Path("runs/measure"),
    hardest: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="List the N samples of smallest margin at the first place.",
            rich_help_panel=RESULTS,
        ),
    ] = 0,
    per_class: Annotated[
        bool,
        typer.Option("--per-class", metavar="", help="Show the statistics of each class too.", rich_help_panel=RESULTS),
    ] = False,
    bracket: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Bracket the true distance of the first N samples between a certificate and an attack; slow.",
            rich_help_panel=RESULTS,
        ),
    ] = 0,
) -> None:
    r"""Measure the margins of a network on a data set.

    The margin of a sample is its distance to the decision boundary, to first
    order, at the input or at any layer: negative where the network is wrong,
    NaN where it has no gradient. Statistics are printed; margins.parquet (one
    row per sample), summary.json and page.html, which any browser opens, are
    written; with --bracket also bracket.parquet.

    [bold]Examples[/bold]

    Two places of an untrained network:

      widemargin measure --model elsayed-mnist-cnn --set size=8 \
          --data digits --at input --at conv2

    Your own network, build() in nets.py, in the l_inf norm, and the ten
    samples that are closest to the boundary or furthest beyond it:

      widemargin measure --model nets:build --weights net.safetensors \
          --data mnist --p inf --hardest 10
    """
    from widemargin import norms, places
    from widemargin.data import load
    from widemargin.report import page

    with about("--p"):
        norms.check_p(p)
    settings = parse_settings(set_ or [])
    against = parse_classes(classes)
    check_installed("pyarrow", purpose="writing margins.parquet")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--out is {str(folder)!r}, which is a file, expected a folder")
    chosen = device_of(device)
    network = resolve(model, settings=settings, weights=weights, seed=seed).to(chosen)
    with about("--at"):
        places.check_places(network, at or [places.INPUT])
    with about("--data"):
        found = load(data, root=data_root or SESSION.get().data_root)
    part = found.train if split is Split.train else found.test
    check_fits(network, part, model, data)
    with about("--out"):
        folder.mkdir(parents=True, exist_ok=True)
    if weights is None:
        own = f"the network has the weights that {model} gave it"
        notice(f"no --weights, so {own if ':' in model else 'the network is untrained, its weights random'}")

    result = measured(network, part, at=at or None, p=p, classes=against, read_as=read_as.value, batch_size=batch_size)
    origin: dict[str, Any] = {
        "model": model,
        "set": [printable(pair) for pair in set_ or []],
        "weights": None if weights is None else printable(weights),
        **({"seed": seed} if weights is None else {}),
        "data": data,
        "split": split.value,
        "batch_size": batch_size,
        "device": str(chosen),
        "widemargin": __version__,
    }
    result = dataclasses.replace(result, settings={**origin, **result.settings})

    written = [*result.write(folder)]  # before anything is printed: `| head` must not cost the results
    closed = bracketed(network, part, bracket, p=p, batch_size=batch_size) if bracket else None
    if closed is not None:
        written.append(arms.write_bracket(folder / "bracket.parquet", closed))
    if is_installed(*EXTRAS["report"]):
        written.append(page.write(folder / "page.html", _shown(result, found, part, origin, closed)))
    else:
        notice("no page.html, which needs more packages: pip install 'widemargin[report]'")
    console = out()
    accuracy = f"{100 * result.accuracy:.2f} %"
    console.print(text(f"{model} on {data} ({split}): {len(result)} samples, accuracy {accuracy}", "bold"))
    console.print(statistics.by_place(result))
    if per_class:
        for place in result.margins:
            console.print(statistics.by_class(result, place, found.classes))
    if hardest:
        console.print(statistics.hardest(result, hardest, found.classes))
    if closed is not None:
        for line in str(closed).splitlines():
            console.print(text(line))
    for path in written:
        console.print(text(f"wrote {path}"), soft_wrap=True)


def _shown(
    result: Measurement, found: Data[Any], part: Any, origin: Mapping[str, Any], closed: Bracket | None
) -> Result:
    """The page's values."""
    from widemargin._io.provenance import provenance

    arm = arms.arm(
        origin["model"],
        result,
        inputs=getattr(part, "x", None),  # a data set that reads an image when it is asked for has none in memory
        bounds=found.bounds,
        classes=found.classes,
        hardest=24,
        **({} if closed is None else {"bracket": arms.bracket(closed)}),
    )
    origins = provenance(origin["device"])
    return {
        "title": f"{origin['model']} on {origin['data']}",
        "subtitle": f"{len(result):,} samples of its {origin['split']} set",
        "norm": arms.norm(result.settings["p"]),
        "arms": [arm],
        "settings": {key: value for key, value in result.settings.items() if value not in (None, [])},
        "versions": origins["versions"],
        "hardware": origins["hardware"],
    }


def measured(network: nn.Module, part: Any, *, batch_size: int, **options: Any) -> Measurement:
    """`margins.measure`, with a sentence where the memory does not suffice."""
    import torch

    from widemargin import margins

    try:
        return margins.measure(network, part, batch_size=batch_size, **options)
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"--batch-size is {batch_size}, too many samples at a time for this device's memory"
        ) from error


def bracketed(network: nn.Module, part: Any, count: int, *, p: float, batch_size: int) -> Bracket:
    """The bracket of the first `count` samples."""
    import torch

    from widemargin.certify.bracket import bracket
    from widemargin.data import batches

    found = []
    for x, y in batches(part, batch_size=min(count, batch_size)):
        found.append((x, y))
        if sum(len(labels) for _, labels in found) >= count:
            break
    x, y = (torch.cat(parts)[:count] for parts in zip(*found, strict=True))
    with about("--bracket"):
        return bracket(network, x, y, p, batch_size=batch_size)


def parse_classes(value: str) -> int | Literal["all"]:
    """The argument of `--classes`."""
    if value == "all":
        return "all"
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"--classes is {value!r}, expected a number of other classes, at least 1, or 'all'")
    return int(value)


def check_fits(network: nn.Module, part: Any, model: str, data: str) -> None:
    """Run one sample, so that a network for other inputs is told in a sentence and not by the inside of a layer."""
    import torch

    from widemargin.data import batches
    from widemargin.modules import cast_input, evaluating

    x, _ = next(iter(batches(part, batch_size=1)))
    x = cast_input(network, x)
    try:
        with evaluating(network), torch.no_grad():
            network(x)
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"--model {model} does not fit into this device's memory, even with one sample at a time"
        ) from error
    except RuntimeError as error:
        raise ValueError(
            f"--model {model} can't take the inputs of --data {data}, of shape {list(x.shape[1:])}: "
            f"{str(error).splitlines()[0]}; its settings may change that (--set)"
        ) from error
