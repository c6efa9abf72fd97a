"""`widemargin picture`: a plane through a network's inputs, with its cells, decisions and boundary."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin._io.optional import EXTRAS, check_installed
from widemargin.cli.console import notice, out, printable, say, text
from widemargin.cli.devices import device as device_of
from widemargin.cli.errors import about
from widemargin.cli.measure import RESULTS, Split, check_fits
from widemargin.cli.networks import parse_settings, resolve
from widemargin.cli.options import DATA, NETWORK, DataRoot, Device, Set, Weights
from widemargin.cli.session import SESSION

PLANE = "Plane"


class Paper(StrEnum):
    """The papers whose pictures of planes are drawn from networks trained here."""

    sokolic = "sokolic"
    elsayed = "elsayed"


def picture(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A name of [bold]widemargin models[/bold], or module:function, a function of yours that returns an "
            "nn.Module.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name of [bold]widemargin data[/bold].", rich_help_panel=DATA),
    ] = None,
    set_: Set = None,
    weights: Weights = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of random weights.", rich_help_panel=NETWORK)] = 0,
    split: Annotated[Split, typer.Option(help="Which part of the data.", rich_help_panel=DATA)] = Split.test,
    data_root: DataRoot = None,
    samples: Annotated[
        str | None,
        typer.Option(
            metavar="I,J,K",
            help="The plane through these three samples; by default the first of three classes. Data of two "
            "dimensions have their own plane.",
            rich_help_panel=PLANE,
        ),
    ] = None,
    room: Annotated[
        float,
        typer.Option(
            min=0, metavar="R", help="Room around the samples, in parts of their extent.", rich_help_panel=PLANE
        ),
    ] = 0.4,
    max_cells: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="With more cells than that, a raster is drawn and says so.", rich_help_panel=PLANE
        ),
    ] = 10_000,
    pixels: Annotated[
        int, typer.Option(min=8, max=1024, metavar="N", help="Rows and columns of a raster.", rich_help_panel=PLANE)
    ] = 200,
    paper: Annotated[
        Paper | None,
        typer.Option(
            help="Instead: sokolic's Fig. 1 or elsayed's Fig. 1b, from networks trained here, in a minute.",
            rich_help_panel=PLANE,
        ),
    ] = None,
    device: Device = "auto",
    folder: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where the files go.", rich_help_panel=RESULTS),
    ] = Path("runs/picture"),
) -> None:
    r"""Draw a plane through the inputs of a network, exactly.

    The plane through three samples, or the whole plane of data of two
    dimensions: the cells in which the network is affine, the classes that it
    answers, and the boundary between them. For chains of linear layers,
    convolutions, ReLUs and pools. picture.html, which any browser opens,
    picture.svg and picture.json are written.

    [bold]Examples[/bold]

    Three digits and what lies between them:

      widemargin picture --model sokolic-mlp --set inputs=64 \
          --weights net.safetensors --data digits --samples 3,14,15

    The first figure of sokolic:

      widemargin picture --paper sokolic
    """
    from widemargin._io.files import write_json
    from widemargin.report import figures, planes
    from widemargin.report import picture as page

    check_installed(*EXTRAS["report"])
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--out is {str(folder)!r}, which is a file, expected a folder")
    if paper is not None:
        if model is not None or data is not None:
            raise ValueError(f"--paper is {paper.value!r}, which trains its own networks: leave out --model and --data")
        from widemargin.cli import paper_pictures

        drawn = getattr(paper_pictures, paper.value)(told=say)
    else:
        if model is None or data is None:
            raise ValueError("--model and --data are needed, or --paper for a picture of a paper")
        settings, chosen = parse_settings(set_ or []), device_of(device)
        wanted = parse_samples(samples)
        network = resolve(model, settings=settings, weights=weights, seed=seed).to(chosen)
        drawn = _drawn(
            network,
            _named(
                model=model,
                set=set_ or [],
                weights=weights,
                seed=seed,
                data=data,
                split=split.value,
                device=str(chosen),
            ),
            root=data_root,
            samples=wanted,
            room=room,
            max_cells=max_cells,
            pixels=pixels,
        )
    with about("--out"):
        folder.mkdir(parents=True, exist_ok=True)
    written = [
        page.write(folder / "picture.html", drawn),
        figures.save(planes.figure(drawn), folder / "picture.svg"),
        write_json(folder / "picture.json", drawn),
    ]
    console = out()
    for panel in drawn["panels"]:
        console.print(text(panel["title"], "bold"))
        console.print(text(panel["text"]), soft_wrap=True)
    for path in written:
        console.print(text(f"wrote {path}"), soft_wrap=True)


def parse_samples(value: str | None) -> tuple[int, int, int] | None:
    """The argument of `--samples`."""
    if value is None:
        return None
    parts = value.split(",")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts) or len(set(parts)) < 3:
        raise ValueError(f"--samples is {value!r}, expected three different indices such as 0,1,2")
    one, two, three = map(int, parts)
    return one, two, three


def _named(**origin: Any) -> dict[str, Any]:
    origin["set"] = [printable(pair) for pair in origin["set"]]
    if origin["weights"] is None:
        own = f"the network has the weights that {origin['model']} gave it"
        untrained = "the network is untrained, its weights random"
        notice(f"no --weights, so {own if ':' in origin['model'] else untrained}")
    return {key: printable(value) for key, value in origin.items() if value not in (None, [])}


def _drawn(network: Any, origin: dict[str, Any], *, root: Path | None, samples: Any, **options: Any) -> dict[str, Any]:
    from widemargin._io.provenance import provenance
    from widemargin.cli import plane_pictures
    from widemargin.data import Samples, load

    with about("--data"):
        found = load(origin["data"], root=root or SESSION.get().data_root)
    part = found.train if origin["split"] == "train" else found.test
    if not isinstance(part, Samples):
        raise TypeError(f"--data is {origin['data']!r}, whose samples are not in memory, expected another data set")
    if not part.x.is_floating_point():
        raise TypeError(f"--data is {origin['data']!r}, whose inputs are {part.x.dtype}, expected numbers to move in")
    check_fits(network, part, origin["model"], origin["data"])
    with about("--samples"):
        chosen = plane_pictures.three(part, samples) if samples or tuple(part.x.shape[1:]) != (2,) else None
    with about("--model"):
        panel = plane_pictures.panel(network, part, found, chosen, **options)
    origins = provenance(origin["device"])
    return {
        "title": f"{origin['model']} on {origin['data']}",
        "subtitle": f"the {origin['split']} set, in a plane of the inputs",
        "panels": [panel],
        "settings": origin | {"samples": "the whole plane" if chosen is None else list(chosen)},
        "versions": origins["versions"],
        "hardware": origins["hardware"],
    }
