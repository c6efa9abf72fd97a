"""`widemargin explain`: the nearest other class of single samples, and the smallest change that reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from widemargin._io.optional import check_installed
from widemargin.cli import options
from widemargin.cli.console import out, text, wrote
from widemargin.cli.errors import about
from widemargin.cli.inputs import in_memory, load_inputs, make_folder, note_untrained
from widemargin.cli.options import data_option, margin_option
from widemargin.cli.sources import DataSource


def explain(
    model: options.Model,
    data: options.DataName,
    set_: options.Set = None,
    weights: options.Weights = None,
    index: Annotated[
        list[int] | None, data_option("Position of a sample; repeat for several. By default 0.", "N", flag="--index")
    ] = None,
    seed: options.Seed = 0,
    test: options.Test = None,
    label: options.Label = None,
    split: options.Split = "test",
    data_root: options.DataRoot = None,
    p: Annotated[float, margin_option("The l_p norm of the distance, from 1 to inf.", "P", flag="--p")] = 2.0,
    device: options.Device = "auto",
    folder: options.Folder = Path("runs/explain"),
) -> None:
    r"""Explain the decisions of a network for single samples.

    For each sample: the answer, the nearest other class, the smallest change
    found that leads there, its distance, and a distance within which no change
    does, where one can be proved. Writes page.html.

    [bold]Example[/bold]

    Two samples of the test set:

      widemargin explain --model elsayed-mnist-cnn --weights net.safetensors \
          --data mnist --index 3 --index 18
    """
    from widemargin import norms
    from widemargin.diagnostics.explanation import explain as explained

    with about("--p"):
        norms.check_p(p)
    check_installed("jinja2", purpose="writing page.html")
    source = DataSource(data=data, test=test, label=label, split=split, seed=seed, root=data_root)
    inputs = load_inputs(model, source, set_, weights, device, folder)
    samples = in_memory(inputs.samples, data)
    chosen = index or [0]
    for position in chosen:
        if not 0 <= position < len(samples):
            raise ValueError(f"--index is {position}, but the {split} set of {data} has {len(samples)} samples")
    make_folder(folder)
    note_untrained(model, weights)
    bounds = inputs.data.bounds if samples.x.is_floating_point() else None
    found = explained(
        inputs.network,
        samples.x[chosen],
        samples.y[chosen],
        p=p,
        bounds=bounds,
        classes=inputs.data.classes,
        names=samples.columns,
    )
    title = f"{model} on {data}: decisions explained"
    page = found.page(folder / "page.html", title=title, positions=chosen, settings=inputs.origin)
    for position, one in zip(chosen, found, strict=True):
        out().print(text(f"sample {position}: {one}"))
    for note in found.notes:
        out().print(text(note))
    wrote(page)
