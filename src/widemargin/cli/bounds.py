"""`widemargin bounds`: generalization bounds and certified distances from the margins of a network."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from widemargin import __version__
from widemargin.cli import options, tables
from widemargin.cli.console import notice, out, text, wrote
from widemargin.cli.errors import about
from widemargin.cli.inputs import in_memory, load_inputs, note_untrained
from widemargin.cli.options import Number, data_option, option
from widemargin.cli.sources import DataSource

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.bounds import Bound, Certificate, Covering, InputMargin, MarginEstimate
    from widemargin.data import Samples
    from widemargin.report.schema import Json

Options: TypeAlias = "dict[str, Json]"

theorem_option = partial(option, panel="Theorems")


def bounds(
    model: options.Model,
    data: options.DataName,
    set_: options.Set = None,
    weights: options.Weights = None,
    test: options.Test = None,
    label: options.Label = None,
    split: options.Split = "train",
    samples: Annotated[int, data_option("Use at most N samples, drawn at random.", "N", min=2)] = 500,
    data_root: options.DataRoot = None,
    margin: Annotated[
        Number,
        theorem_option("γ of the spectral bound, in units of scores; by default the median of correct samples.", "X"),
    ] = None,
    r: Annotated[
        Number,
        theorem_option("Centre of odn's band; by default the median distance of correct samples.", "X", flag="--r"),
    ] = None,
    theta: Annotated[Number, theorem_option("Half the width of odn's band; by default r/2.", "X")] = None,
    delta: Annotated[float, theorem_option("The probability that a bound fails.", "X")] = 0.05,
    covering: Annotated[
        str,
        theorem_option(
            "Covering number of the inputs: measured, or that of a model: mixture:L,K (L Gaussians of rank K) or "
            "sparse:L,K (K-sparse in L atoms).",
            "NAME",
        ),
    ] = "measured",
    cushions: Annotated[
        Literal["printed", "squared"], theorem_option("The cushions μ_i μ_i→ of odn as printed, or squared.")
    ] = "printed",
    log: Annotated[
        Literal["printed", "proof"], theorem_option("The logarithm of odn as in the theorem, or as in its proof.")
    ] = "printed",
    probes: Annotated[
        int | None,
        theorem_option("Probes that estimate Jacobians between layers, 0: exact, the default of small networks.", "N"),
    ] = None,
    biases: Annotated[
        Literal["ignore", "refuse"], theorem_option("The theorems have no biases: leave them out, or refuse them.")
    ] = "ignore",
    seed: options.Seed = 0,
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

    if not 0 < delta < 1:
        raise ValueError(f"--delta is {delta}, expected a probability between 0 and 1")
    cover = parse_covering(covering)
    source = DataSource(data=data, test=test, label=label, split=split, seed=seed, root=data_root)
    inputs = load_inputs(model, source, set_, weights, device, folder)
    part = drawn(in_memory(inputs.samples, data), samples, seed)
    note_untrained(model, weights)
    common = {"biases": biases, "batch_size": batch_size}
    odn = {"delta": delta, "cushion_form": cushions, "log_form": log, "probes": probes, "seed": seed, **common}
    robust, found = robustness_bounds(inputs.network, part, cover, delta=delta, batch_size=batch_size, seed=seed)
    rows = chain_bounds(inputs.network, part, margin, r, theta, odn, common) | robust
    distances = {kind.name: _distances(kind) for kind in (found.frobenius, found.spectral, found.jacobian) if kind}
    origin = {**inputs.origin, "seed": seed, "samples": len(part), "widemargin": __version__}
    plain = {"bounds": {name: _plain(bound) for name, bound in rows.items()}, "input margin": distances}
    path = write_json(folder / "bounds.json", {"settings": origin, **plain})
    console = out()
    console.print(text(f"{model} on {data} ({split}): {len(part)} samples", "bold"))
    for shown in (tables.bound_values(rows), tables.distances(distances), tables.terms(rows)):
        console.print(shown)
    wrote(path)


def chain_bounds(
    network: nn.Module, part: Samples, margin: Number, r: Number, theta: Number, odn: Options, common: Options
) -> dict[str, Bound]:
    """The bounds of Bartlett, Neyshabur and odn by their names; none for networks with BatchNorm.

    γ, r and θ that are None are taken from the correctly classified samples.
    """
    from widemargin import bounds, margins
    from widemargin.bounds.chain import chain_of

    x, y = part.x, part.y
    try:
        chain_of(network, x, biases=common["biases"])
    except TypeError as error:
        notice(f"without Bartlett's, Neyshabur's and odn's bounds: {error}")
        return {}
    if margin is None or r is None:
        measured = margins.measure(network, part, batch_size=common["batch_size"], progress=False)
        right = measured.output > 0
        if not bool(right.any()):
            raise ValueError("--margin and --r are needed, as no sample is classified correctly")
        margin = _median(measured.output[right]) if margin is None else margin
        r = _median(measured.margins["input"][right]) if r is None else r
    with about("--margin"):
        rows: dict[str, Bound] = {"Bartlett": bounds.spectral(network, x, y, margin=margin, **common)}
    rows["Neyshabur"] = bounds.neyshabur(network, x, biases=common["biases"])
    with about("--r, --theta"):
        rows["odn"] = bounds.odn(network, x, y, r=r, theta=r / 2 if theta is None else theta, **odn)
    return rows


MOST_EXACT = 200
"""The largest number of samples for which the Jacobian bound in the plane is exact; more would take minutes."""


def robustness_bounds(
    network: nn.Module, part: Samples, cover: Covering, *, delta: float, batch_size: int, seed: int
) -> tuple[dict[str, Bound], InputMargin]:
    """The bounds from the certified and from the estimated distance to the boundary, and these distances."""
    from widemargin import bounds
    from widemargin.bounds.chain import chain_of

    x, y = part.x, part.y
    classes = max(chain_of(network, x, biases="ignore", batch_norm=True).weights[-1].units, 2)
    exact = tuple(x.shape[1:]) == (2,) and len(x) <= MOST_EXACT
    jacobian: Literal["exact", "estimate"] = "exact" if exact else "estimate"
    found = bounds.input_margin(network, x, y, jacobian=jacobian, batch_size=batch_size, seed=seed)
    kinds = {"robustness": found.spectral, f"robustness, {'Jacobian' if exact else 'estimated'}": found.jacobian}
    settings: Options = {"classes": classes, "covering": cover, "delta": delta}
    return {name: bounds.robustness(kind, x, **settings) for name, kind in kinds.items() if kind is not None}, found


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


def _distances(kind: Certificate | MarginEstimate) -> dict[str, float]:
    from widemargin.margins import Distribution

    known = Distribution.of(kind.values)
    values = {"min": known.minimum, "median": known.quantile(0.5), "max": known.quantile(1.0)}
    return {**values, "above 0": float((kind.values > 0).double().mean())}


def _plain(bound: Bound) -> dict[str, Json]:
    assumptions = [{"text": a.text, "holds": a.holds, "found": a.found} for a in bound.assumptions]
    same = {key: getattr(bound, key) for key in ("source", "value", "vacuous", "terms")}
    return {**same, "assumptions": assumptions}


def _median(values: Tensor) -> float:
    return float(values.double().nanmedian())
