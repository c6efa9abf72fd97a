"""`widemargin picture`: a plane through the inputs of a network, with its cells, decisions and boundary."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli import options
from widemargin.cli.console import out, say, text, wrote
from widemargin.cli.errors import about
from widemargin.cli.inputs import Inputs, check_folder, in_memory, load_inputs, make_folder, note_untrained
from widemargin.cli.options import option
from widemargin.cli.sources import DataSource

if TYPE_CHECKING:
    from widemargin.report.schema import Picture

plane_option = partial(option, panel="Plane")


def picture(
    model: Annotated[str | None, options.MODEL] = None,
    data: Annotated[str | None, options.DATA] = None,
    set_: options.Set = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    test: options.Test = None,
    label: options.Label = None,
    split: options.Split = "test",
    data_root: options.DataRoot = None,
    samples: Annotated[
        str | None,
        plane_option(
            "Indices of three samples that span the plane; by default the first samples of three classes. "
            "Two-dimensional data are drawn whole.",
            "I,J,K",
        ),
    ] = None,
    padding: Annotated[
        float, plane_option("Space around the samples, as a fraction of their extent.", "X", min=0)
    ] = 0.4,
    max_cells: Annotated[int, plane_option("Draw a raster if there are more cells.", "N", min=1)] = 10_000,
    pixels: Annotated[int, plane_option("Rows and columns of a raster.", "N", min=8, max=1024)] = 200,
    paper: Annotated[
        Literal["sokolic", "elsayed"] | None,
        plane_option("Draw sokolic's Fig. 1 or elsayed's Fig. 1b instead, from networks trained in a minute."),
    ] = None,
    device: options.Device = "auto",
    folder: options.Folder = Path("runs/picture"),
) -> None:
    r"""Draw a plane through the inputs of a network, exactly.

    The plane through three samples, or the whole plane for two-dimensional
    data: the cells in which the network is affine, the predicted classes, and
    the decision boundary. For chains of linear layers, convolutions, ReLUs and
    pools. Writes picture.html, picture.svg and picture.json.

    [bold]Examples[/bold]

    The plane through three digits:

      widemargin picture --model sokolic-mlp --set inputs=64 \
          --weights net.safetensors --data digits --samples 3,14,15

    The first figure of sokolic:

      widemargin picture --paper sokolic
    """
    from widemargin._io.files import write_json
    from widemargin.report import figures, planes
    from widemargin.report import picture as page

    check_installed(*EXTRAS["report"])
    check_folder(folder)
    if paper is not None:
        if model is not None or data is not None:
            raise ValueError(f"--paper is {paper!r}, which trains its own networks: leave out --model and --data")
        from widemargin.cli import paper_pictures

        drawn = getattr(paper_pictures, paper)(log=say)
    else:
        if model is None or data is None:
            raise ValueError("--model and --data are needed, or --paper for a picture of a paper")
        chosen = parse_samples(samples)
        source = DataSource(data=data, test=test, label=label, split=split, seed=seed, root=data_root)
        inputs = load_inputs(model, source, set_, weights, device, folder)
        note_untrained(model, weights)
        drawn = _picture(inputs, chosen, padding, max_cells, pixels)
    make_folder(folder)
    written = [
        page.write(folder / "picture.html", drawn),
        figures.save(planes.figure(drawn), folder / "picture.svg"),
        write_json(folder / "picture.json", drawn),
    ]
    console = out()
    for panel in drawn["panels"]:
        console.print(text(panel["title"], "bold"))
        console.print(text(panel["text"]), soft_wrap=True)
    wrote(*written)


def parse_samples(value: str | None) -> tuple[int, int, int] | None:
    """The argument of `--samples`."""
    if value is None:
        return None
    parts = value.split(",")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts) or len(set(parts)) < 3:
        raise ValueError(f"--samples is {value!r}, expected three different indices such as 0,1,2")
    return int(parts[0]), int(parts[1]), int(parts[2])


def _picture(
    inputs: Inputs, samples: tuple[int, int, int] | None, padding: float, max_cells: int, pixels: int
) -> Picture:
    from widemargin.cli import arms, plane_pictures

    origin, part = inputs.origin, in_memory(inputs.samples, inputs.origin["data"])
    if not part.x.is_floating_point():
        raise TypeError(f"--data is {origin['data']!r}, whose inputs are {part.x.dtype}, expected floating point")
    with about("--samples"):
        chosen = plane_pictures.three(part, samples) if samples or tuple(part.x.shape[1:]) != (2,) else None
    with about("--model"):
        panel = plane_pictures.panel(inputs.network, part, inputs.data, chosen, padding, max_cells, pixels)
    settings = {**origin, "samples": "the whole plane" if chosen is None else list(chosen)}
    picture = {
        "title": f"{origin['model']} on {origin['data']}",
        "subtitle": f"the {origin['split']} set, in a plane of the inputs",
        "panels": [panel],
        **arms.facts(settings, origin["device"]),
    }
    return cast("Picture", picture)
