"""`widemargin bounds`: generalization bounds and certified distances from the margins of a network."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from widemargin import __version__
from widemargin.cli import bound_tables, options
from widemargin.cli.console import notice, out, text, wrote
from widemargin.cli.errors import about
from widemargin.cli.inputs import load_inputs, note_untrained
from widemargin.cli.options import DataSplit, option

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.bounds import Bound, Covering, InputMargin
    from widemargin.data import Samples
    from widemargin.report.schema import Json

THEOREMS = "Theorems"


class Biases(StrEnum):
    """Treatment of biases, which the theorems do not have."""

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
    model: options.Model,
    data: options.DataName,
    set_: options.Set = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    split: options.Split = DataSplit.train,
    samples: Annotated[int, option("At most N samples, drawn at random.", options.DATA, "N", min=2)] = 500,
    data_root: options.DataRoot = None,
    margin: Annotated[
        float | None,
        option(
            "γ of the spectral bound, in units of the scores; by default the median output margin of the correctly "
            "classified samples.",
            THEOREMS,
            "G",
        ),
    ] = None,
    r: Annotated[
        float | None,
        option(
            "Centre of odn's band; by default the median distance of the correctly classified samples.",
            THEOREMS,
            "X",
            flag="--r",
        ),
    ] = None,
    theta: Annotated[float | None, option("Half-width of odn's band; by default r/2.", THEOREMS, "X")] = None,
    delta: Annotated[float, option("The probability that a bound fails.", THEOREMS, "X")] = 0.05,
    covering: Annotated[
        str,
        option(
            "The covering of the data: measured, mixture:L,K (L Gaussians of rank K) or sparse:L,K (K-sparse in L "
            "atoms).",
            THEOREMS,
            "NAME",
        ),
    ] = "measured",
    cushions: Annotated[CushionForm, option("odn's μ_i μ_i→, or its square.", THEOREMS)] = CushionForm.printed,
    log: Annotated[LogForm, option("odn's logarithm as in the theorem or its proof.", THEOREMS)] = LogForm.printed,
    probes: Annotated[
        int | None,
        option(
            "Probes of the interlayer Jacobians, 0 for exact norms; by default chosen by the size of the network.",
            THEOREMS,
            "N",
        ),
    ] = None,
    biases: Annotated[Biases, option("Leave biases out of the norms, or refuse them.", THEOREMS)] = Biases.ignore,
    batch_size: options.BatchSize = 256,
    device: options.Device = "auto",
    folder: options.Folder = Path("runs/bounds"),
) -> None:
    r"""Compute generalization bounds from the margins of a network.

    Prints each bound with its value (1 or more is vacuous), the assumptions
    that the data violate, and all of its terms; and the certified distance of
    the samples to the decision boundary. The network must be a chain of
    layers. Writes bounds.json.

    [bold]Examples[/bold]

    A network with random weights:

      widemargin bounds --model sokolic-mlp --set inputs=64 --data digits

    A trained network, with odn's band and an assumed covering:

      widemargin bounds --model elsayed-mnist-cnn --set size=8 \
          --weights net.safetensors --data digits --r 1 --theta 0.5 \
          --covering mixture:10,20
    """
    from widemargin._io.files import write_json
    from widemargin.data import Samples

    cover = parse_covering(covering)
    inputs = load_inputs(model, data, set_, weights, seed, split, data_root, device, folder)
    if not isinstance(inputs.samples, Samples):
        raise TypeError(f"--data is {data!r}, whose samples are not in memory, expected another data set")
    part = drawn(inputs.samples, samples, seed)
    note_untrained(model, weights)
    rows, margins = all_bounds(
        inputs.network,
        part,
        margin=margin,
        r=r,
        theta=theta,
        delta=delta,
        cover=cover,
        odn={"cushion_form": cushions.value, "log_form": log.value, "probes": probes, "seed": seed},
        biases=biases.value,
        batch_size=batch_size,
    )
    origin = {**inputs.origin, "seed": seed, "samples": len(part), "widemargin": __version__}
    path = write_json(folder / "bounds.json", {"settings": origin, **bound_tables.plain(rows, margins)})
    console = out()
    console.print(text(f"{model} on {data} ({split}): {len(part)} samples", "bold"))
    console.print(bound_tables.values(rows))
    console.print(bound_tables.margins(margins))
    console.print(bound_tables.terms(rows))
    wrote(path)


def all_bounds(
    network: nn.Module,
    part: Samples,
    *,
    margin: float | None,
    r: float | None,
    theta: float | None,
    delta: float,
    cover: Covering,
    odn: dict[str, Json],
    biases: Literal["ignore", "refuse"],
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
    except TypeError as error:  # BatchNorm, which only Theorem 5 allows
        notice(f"without Bartlett's, Neyshabur's and odn's bounds: {error}")
    else:
        scale = chosen_scale(network, part, margin, r, theta, batch_size)
        with about("--margin"):
            rows["Bartlett"] = bounds.spectral(
                network, x, y, margin=scale["margin"], biases=biases, batch_size=batch_size
            )
        rows["Neyshabur"] = bounds.neyshabur(network, x, biases=biases)
        with about("--r, --theta"):
            band: dict[str, Json] = {"r": scale["r"], "theta": scale["theta"], "delta": delta, **odn}
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
"""The largest number of samples for which the Jacobian bound in the plane is exact; more would take minutes."""


def chosen_scale(
    network: nn.Module, part: Samples, margin: float | None, r: float | None, theta: float | None, batch_size: int
) -> dict[str, float]:
    """γ, r and θ as given, or from the correctly classified samples."""
    from widemargin import margins

    if margin is None or r is None:
        measured = margins.measure(network, part, batch_size=batch_size, progress=False)
        right = measured.output > 0
        if not bool(right.any()):
            raise ValueError(
                "--margin and --r can't be taken from the data, where no sample is classified correctly: give both"
            )
        margin = _median(measured.output[right]) if margin is None else margin
        r = _median(measured.margins["input"][right]) if r is None else r
    return {"margin": margin, "r": r, "theta": r / 2 if theta is None else theta}


def drawn(part: Samples, count: int, seed: int) -> Samples:
    """`count` random samples in their original order, or all samples if there are fewer."""
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
