"""`widemargin bounds`: what the margins of a network promise, theorem by theorem."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widemargin import __version__
from widemargin.cli import bound_tables
from widemargin.cli.console import notice, out, printable, text
from widemargin.cli.devices import device as device_of
from widemargin.cli.errors import about
from widemargin.cli.measure import RESULTS, Split, check_fits
from widemargin.cli.networks import parse_settings, resolve
from widemargin.cli.options import DATA, NETWORK, BatchSize, DataName, DataRoot, Device, Model, Set, Weights
from widemargin.cli.session import SESSION

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.bounds import Bound, Covering, InputMargin
    from widemargin.data import Samples

THEOREMS = "Theorems"


class Biases(StrEnum):
    """What to do with biases, which the theorems do not have."""

    ignore = "ignore"
    refuse = "refuse"


class CushionForm(StrEnum):
    """The denominators of odn's Theorem 1."""

    printed = "printed"
    squared = "squared"


class LogForm(StrEnum):
    """The logarithm of odn's Theorem 1."""

    printed = "printed"
    proof = "proof"


def bounds(
    model: Model,
    data: DataName,
    set_: Set = None,
    weights: Weights = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of random weights and draws.", rich_help_panel=NETWORK)
    ] = 0,
    split: Annotated[
        Split, typer.Option(help="Which part of the data; bounds are of the training set.", rich_help_panel=DATA)
    ] = Split.train,
    samples: Annotated[
        int, typer.Option(min=2, metavar="N", help="At most so many samples, drawn at random.", rich_help_panel=DATA)
    ] = 500,
    data_root: DataRoot = None,
    margin: Annotated[
        float | None,
        typer.Option(
            metavar="G",
            help="γ of the spectral bound, in units of the scores; by default the median output margin of the samples "
            "that are right.",
            rich_help_panel=THEOREMS,
        ),
    ] = None,
    r: Annotated[
        float | None,
        typer.Option(
            "--r",
            metavar="R",
            help="Centre of odn's band; by default the median distance of the samples that are right.",
            rich_help_panel=THEOREMS,
        ),
    ] = None,
    theta: Annotated[
        float | None, typer.Option(metavar="T", help="Its half-width; by default r/2.", rich_help_panel=THEOREMS)
    ] = None,
    delta: Annotated[
        float, typer.Option(metavar="D", help="The probability that a bound fails.", rich_help_panel=THEOREMS)
    ] = 0.05,
    covering: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Balls that hold the data: measured, mixture:L,K (L Gaussians of rank K) or sparse:L,K (K-sparse in "
            "L atoms).",
            rich_help_panel=THEOREMS,
        ),
    ] = "measured",
    cushions: Annotated[
        CushionForm, typer.Option(help="odn's μ_i μ_i→, or its square.", rich_help_panel=THEOREMS)
    ] = CushionForm.printed,
    log: Annotated[
        LogForm, typer.Option(help="odn's logarithm as in the theorem or its proof.", rich_help_panel=THEOREMS)
    ] = LogForm.printed,
    probes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Probes of the interlayer Jacobians, 0 for exact norms; by default by the size of the network.",
            rich_help_panel=THEOREMS,
        ),
    ] = None,
    biases: Annotated[
        Biases, typer.Option(help="Leave biases out of the norms, or refuse them.", rich_help_panel=THEOREMS)
    ] = Biases.ignore,
    batch_size: BatchSize = 256,
    device: Device = "auto",
    folder: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where bounds.json goes.", rich_help_panel=RESULTS),
    ] = Path("runs/bounds"),
) -> None:
    r"""Bound the error of a network by its margins, theorem by theorem.

    Each bound with its value, whether it says anything (a value of 1 or more
    is vacuous), the assumptions that the data break, and every term; and the
    certified distance of the samples to the boundary. The network must be a
    chain of layers. bounds.json is written.

    [bold]Examples[/bold]

    A network with random weights:

      widemargin bounds --model sokolic-mlp --set inputs=64 --data digits

    A trained one, with odn's band and a cover that is supposed:

      widemargin bounds --model elsayed-mnist-cnn --set size=8 \
          --weights net.safetensors --data digits --r 1 --theta 0.5 \
          --covering mixture:10,20
    """
    from widemargin._io.files import write_json
    from widemargin.data import Samples, load

    cover = parse_covering(covering)
    settings = parse_settings(set_ or [])
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--out is {str(folder)!r}, which is a file, expected a folder")
    chosen = device_of(device)
    network = resolve(model, settings=settings, weights=weights, seed=seed).to(chosen)
    with about("--data"):
        found = load(data, root=data_root or SESSION.get().data_root)
    part = found.train if split is Split.train else found.test
    if not isinstance(part, Samples):
        raise TypeError(f"--data is {data!r}, whose samples are not in memory, expected another data set")
    check_fits(network, part, model, data)
    part = drawn(part, samples, seed)
    if weights is None:
        notice("no --weights, so the network has the weights that its builder gave it")

    odn = {"cushion_form": cushions.value, "log_form": log.value, "probes": probes, "seed": seed}
    rows, margins = everything(
        network,
        part,
        margin=margin,
        r=r,
        theta=theta,
        delta=delta,
        cover=cover,
        odn=odn,
        biases=biases.value,
        batch_size=batch_size,
    )
    origin = {
        "model": model,
        "set": [printable(pair) for pair in set_ or []],
        "weights": None if weights is None else printable(weights),
        "seed": seed,
        "data": data,
        "split": split.value,
        "samples": len(part),
        "widemargin": __version__,
    }
    path = write_json(folder / "bounds.json", {"settings": origin, **bound_tables.plain(rows, margins)})
    console = out()
    console.print(text(f"{model} on {data} ({split}): {len(part)} samples", "bold"))
    console.print(bound_tables.values(rows))
    console.print(bound_tables.margins(margins))
    console.print(bound_tables.terms(rows))
    console.print(text(f"wrote {path}"), soft_wrap=True)


def everything(
    network: nn.Module,
    part: Samples,
    *,
    margin: float | None,
    r: float | None,
    theta: float | None,
    delta: float,
    cover: Covering,
    odn: dict[str, Any],
    biases: Any,
    batch_size: int,
) -> tuple[dict[str, Bound], InputMargin]:
    """Every bound by its short name, and the certified input margins."""
    from widemargin import bounds
    from widemargin.bounds.chain import chain_of

    if not 0 < delta < 1:
        raise ValueError(f"--delta is {delta}, expected a probability between 0 and 1")
    x, y = part.x, part.y
    chain = chain_of(network, x, biases="ignore", batch_norm=True)
    rows: dict[str, Bound] = {}
    try:
        chain_of(network, x, biases=biases)
    except TypeError as error:  # BatchNorm, which Theorem 5 alone takes
        notice(f"without Bartlett's, Neyshabur's and odn's bounds: {error}")
    else:
        scale = chosen_scale(network, part, margin, r, theta, batch_size)
        with about("--margin"):
            rows["Bartlett"] = bounds.spectral(
                network, x, y, margin=scale["margin"], biases=biases, batch_size=batch_size
            )
        rows["Neyshabur"] = bounds.neyshabur(network, x, biases=biases)
        with about("--r, --theta"):
            band: dict[str, Any] = {"r": scale["r"], "theta": scale["theta"], "delta": delta, **odn}
            rows["odn"] = bounds.odn(network, x, y, **band, biases=biases, batch_size=batch_size)
    in_plane = tuple(x.shape[1:]) == (2,) and len(x) <= MOST_EXACT
    margins = bounds.input_margin(
        network, x, y, jacobian="exact" if in_plane else "estimate", batch_size=batch_size, seed=odn["seed"]
    )
    classes = max(chain.weights[-1].units, 2)
    for name, kind in (
        ("robustness", margins.spectral),
        (f"robustness, {'Jacobian' if in_plane else 'estimated'}", margins.jacobian),
    ):
        assert kind is not None
        rows[name] = bounds.robustness(kind, x, classes=classes, covering=cover, delta=delta)
    return rows, margins


MOST_EXACT = 200
"""In the plane the Jacobian bound is exact for so many samples; for more, which would take minutes, an estimate."""


def chosen_scale(
    network: nn.Module, part: Samples, margin: float | None, r: float | None, theta: float | None, batch_size: int
) -> dict[str, float]:
    """γ, r and θ as asked for, the rest from the samples that are right."""
    from widemargin import margins

    if margin is None or r is None:
        measured = margins.measure(network, part, batch_size=batch_size, progress=False)
        right = measured.output > 0
        if not bool(right.any()):
            raise ValueError("--margin and --r can't be taken from the data, where no sample is right: give both")
        margin = _median(measured.output[right]) if margin is None else margin
        r = _median(measured.margins["input"][right]) if r is None else r
    return {"margin": margin, "r": r, "theta": r / 2 if theta is None else theta}


def drawn(part: Samples, count: int, seed: int) -> Samples:
    """`count` samples at random, in their order; all where there are no more."""
    import torch

    if count >= len(part):
        return part
    order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))
    return part.select(order[:count].sort().values)


def parse_covering(value: str) -> Covering:
    """The argument of `--covering`."""
    from widemargin import bounds

    if value == "measured":
        return bounds.GreedyCovering()
    match = re.fullmatch(r"(mixture|sparse):([0-9]{1,9}),([0-9]{1,9})", value)
    if match is None:
        raise ValueError(f"--covering is {value!r}, expected measured, mixture:L,K or sparse:L,K")
    first, second = int(match[2]), int(match[3])
    with about("--covering"):
        if match[1] == "mixture":
            return bounds.GaussianMixture(components=first, rank=second)
        return bounds.SparseDictionary(atoms=first, sparsity=second)


def _median(values: Tensor) -> float:
    return float(values.double().nanmedian())
