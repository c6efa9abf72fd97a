"""`widemargin measure`: the margins of a network on a data set."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from widemargin import __version__
from widemargin._io.optional import check_installed
from widemargin.cli import arms, options, tables
from widemargin.cli.console import out, text, wrote
from widemargin.cli.errors import about
from widemargin.cli.inputs import Inputs, load_inputs, make_folder, measure_margins, note_untrained, parse_classes
from widemargin.cli.options import margin_option, result_option
from widemargin.cli.sources import DataSource

if TYPE_CHECKING:
    from widemargin.certify.bracket import Bracket


def measure(
    model: options.Model,
    data: options.DataName,
    set_: options.Set = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    test: options.Test = None,
    label: options.Label = None,
    split: options.Split = "test",
    data_root: options.DataRoot = None,
    at: options.At = None,
    p: Annotated[float, margin_option("The l_p norm of the distance, from 1 to inf.", "P", flag="--p")] = 2.0,
    classes: Annotated[
        str, margin_option("Compare with the N other classes of highest score; the nearest of them counts.", "N|all")
    ] = "1",
    read_as: Annotated[
        Literal["logits", "softmax", "probabilities"],
        margin_option(
            "logits: the scores. softmax: their softmax. probabilities: scores from probabilities that the network "
            "returns.",
            "KIND",
        ),
    ] = "logits",
    batch_size: options.BatchSize = 256,
    device: options.Device = "auto",
    folder: options.Folder = Path("runs/measure"),
    hardest: Annotated[int, result_option("List the N samples of smallest margin at the first place.", "N", min=0)] = 0,
    per_class: Annotated[
        bool, result_option("Print the statistics of each class too.", "", flag="--per-class")
    ] = False,
    bracket: Annotated[
        int,
        result_option("Also bound the exact distance of the first N samples (certificate, attack); slow.", "N", min=0),
    ] = 0,
) -> None:
    r"""Measure the margins of a network on a data set.

    The margin of a sample is its distance to the decision boundary, to first
    order, at the input or at any layer: negative if the sample is
    misclassified, NaN where the gradient is zero. Prints statistics and writes
    margins.parquet (one row per sample), summary.json and page.html; with
    --bracket also bracket.parquet.

    [bold]Examples[/bold]

    Two places of an untrained network:

      widemargin measure --model elsayed-mnist-cnn --set size=8 \
          --data digits --at input --at conv2

    Your own images, a folder for each class, all of them:

      widemargin measure --model elsayed-mnist-cnn --data photos/ --split all

    Your own network, build() in nets.py, in the l_inf norm, with a list of the
    ten samples of smallest margin:

      widemargin measure --model nets:build --weights net.safetensors \
          --data mnist --p inf --hardest 10
    """
    from widemargin import norms

    with about("--p"):
        norms.check_p(p)
    against = parse_classes(classes)
    check_installed("pyarrow", purpose="writing margins.parquet")  # before the work, not after it
    source = DataSource(data=data, test=test, label=label, split=split, seed=seed, root=data_root)
    inputs = load_inputs(model, source, set_, weights, device, folder, at)
    make_folder(folder)
    note_untrained(model, weights)
    how = {"at": at or None, "p": p, "classes": against, "read_as": read_as}
    origin = {**inputs.origin, "batch_size": batch_size, "widemargin": __version__}
    result = measure_margins(inputs, origin, batch_size=batch_size, **how)
    written = [*result.write(folder)]  # before anything is printed: `| head` must not lose the results
    bounds = _bracket(inputs, bracket, p=p, batch_size=batch_size) if bracket else None
    more = {}
    if bounds is not None:
        written.append(arms.write_bracket(folder / "bracket.parquet", bounds))
        more["bracket"] = arms.bracket(bounds)
    arm = arms.of_inputs(model, result, inputs, hardest=24, **more)
    subtitle = f"all {len(result):,} samples" if split == "all" else f"{len(result):,} samples of its {split} set"
    written += arms.write_page(folder, arm, title=f"{model} on {data}", subtitle=subtitle, settings=result.settings)
    console = out()
    console.print(text(f"{model} on {data} ({split}): {len(result)} samples, {tables.accuracy(result)}", "bold"))
    console.print(tables.by_place(result))
    for place in result.margins if per_class else ():
        console.print(tables.by_class(result, place, inputs.data.classes))
    if hardest:
        console.print(tables.hardest(result, hardest, inputs.data.classes))
    for line in str(bounds).splitlines() if bounds is not None else ():
        console.print(text(line))
    wrote(*written)


def _bracket(inputs: Inputs, count: int, *, p: float, batch_size: int) -> Bracket:
    """The bracket of the first `count` samples."""
    import torch

    from widemargin.certify.bracket import bracket
    from widemargin.data import batches

    size = min(count, batch_size)
    parts = itertools.islice(batches(inputs.samples, batch_size=size), -(-count // size))
    x, y = (torch.cat(columns)[:count] for columns in zip(*parts, strict=True))
    with about("--bracket"):
        return bracket(inputs.network, x, y, p, batch_size=batch_size)
