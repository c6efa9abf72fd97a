"""Measurements of a final trial of `classify` beside its accuracy: values of `settings["measure"]`.

    {"kind": "attack", "attack": "fgsm", "epsilons": […]}       white-box curve; also "ifgsm", "pgd"; `steps` for those
    {"kind": "attack", …, "source": {"arm": "cross-entropy"}}   black-box: made on that arm's network of the same seed
    {"kind": "attack", …, "target": {"arm": "cross-entropy"}}   the accuracy of that arm's network under attacks on ours
    {"kind": "attack", …, "relative": True}                     ε in units of √D, D numbers in an input
    {"kind": "minimal", "p": 2, "steps": 30}                    distances to the nearest misclassified inputs
    {"kind": "attack", …, "clip": false, "gradient": "plain"}   as elsayed prints it, see `printed_attacks`
    {"kind": "noise", "sigmas": […]}                            Gaussian noise of rising standard deviation
    {"kind": "margins", "p": 2, "at": ["input"]}                statistics of the distance to the boundary
    {"kind": "density", "grid": [from, to, points]}             the density of the l_2 distance at the input
    {"kind": "embedding", "of": ["train", "test"]}              t-SNE of the last hidden layer, see `embedding`
    {"kind": "bounds", "r": 2, "thetas": [0.7, …]}              odn's bound and Bartlett's, on training samples
    {"kind": "plane", "samples": True, "seeds": [0]}            the boundary of a network on the plane, as points

All take `count`, how many test samples are used (by default all), and `curve`, the name of the points (by default that
of the attack, "noise" or "margins").
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from widemargin import attacks, bounds, margins
from widemargin.checks import check_choice
from widemargin.margins.output import Classes, Reading
from widemargin.registry import argument
from widemargin.studies import embedding, planes, printed_attacks, samples
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings

Number = float | int
Sizes: TypeAlias = Sequence[Number]
Count: TypeAlias = int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A trained network, its samples and seed; `networks` trains or loads that of other settings, for attacks."""

    network: nn.Module
    parts: samples.Parts
    seed: int
    networks: Callable[[Settings], nn.Module]


def take(settings: Settings, subject: Subject) -> Row:
    """Metrics, and points of curves under `"points"`."""
    options = {key: value for key, value in settings.items() if key != "kind"}
    if settings.get("kind") not in _KINDS:
        raise ValueError(f"kind of a measurement is {settings.get('kind')!r}, expected one of {', '.join(_KINDS)}")
    return _KINDS[settings["kind"]](subject, **options)


def _attack(
    subject: Subject,
    *,
    attack: str,
    epsilons: Sizes,
    source: Settings | None = None,
    target: Settings | None = None,
    relative: bool = False,
    clip: bool = True,
    gradient: str = "safe",
    count: Count = None,
    curve: str | None = None,
    **settings: Any,
) -> Row:
    if source is not None and target is not None:
        raise ValueError("an attack has a source and a target, expected one of them: the other is the trial's network")
    maker = subject.network if target is not None else None if source is None else subject.networks(source)
    attacked = subject.network if target is None else subject.networks(target)
    check_choice("gradient", gradient, ("safe", "plain"))
    of = attacks if gradient == "safe" else printed_attacks
    move = functools.partial(getattr(of, attack), **settings) if settings or of is printed_attacks else attack
    options = {"attack": move, "source": maker, "bounds": subject.parts.whole.bounds if clip else None}
    unit = math.sqrt(subject.parts.whole.test.x[0].numel()) if relative else 1.0
    return _curve(subject, attacked, epsilons, count, curve or attack, "epsilon", unit=unit, **options)


def _minimal(subject: Subject, *, p: float | str = 2.0, steps: int = 30, count: Count = None) -> Row:
    """`distance`: the median of the samples that are right; `mean distance`: that of all, where the others have 0.

    A search that found nothing has an infinite distance in the median; the mean is of those that were `found`.
    """
    test = samples.first(subject.parts.test, count)
    found = attacks.minimal(
        subject.network,
        test.x,
        test.y,
        p=float(argument(p)),
        steps=steps,
        bounds=subject.parts.whole.bounds,
        search="own",
    )
    right = found.distances[found.distances > 0]
    median = float(right.median()) if len(right) else 0.0
    mean = float(found.distances[found.found].mean()) if bool(found.found.any()) else None
    return {"distance": median, "mean distance": mean, "found": float(found.found.double().mean())}


def _noise(subject: Subject, *, sigmas: Sizes, count: Count = None, curve: str = "noise") -> Row:
    """Noisy images are not clipped back (elsayed, Figure 7)."""
    return _curve(subject, subject.network, sigmas, count, curve, "sigma", attack="gaussian", bounds=None)


def _curve(
    subject: Subject,
    model: nn.Module,
    sizes: Sizes,
    count: Count,
    curve: str,
    at: str,
    *,
    unit: float = 1.0,
    **options: Any,
) -> Row:
    test, scaled = samples.first(subject.parts.test, count), [unit * size for size in sizes]
    rows = attacks.curve(model, test, scaled, seed=subject.seed, batch_size=1000, progress=False, **options)
    points = [{"curve": curve, "at": {at: size}, "accuracy": row["accuracy"]} for size, row in zip(sizes, rows)]
    return {"points": points}


def _margins(
    subject: Subject,
    *,
    p: float | str = 2.0,
    at: list[str] | None = None,
    classes: Classes = 1,
    scores: Reading = "logits",
    count: Count = None,
    curve: str = "margins",
) -> Row:
    test = samples.first(subject.parts.test, count)
    measured = margins.measure(
        subject.network, test, at=at or ["input"], p=float(argument(p)), classes=classes, read_as=scores, progress=False
    )
    points = []
    for place, d in measured.statistics.items():
        values = {"mean": d.mean, "sd": d.std, "mean/sd": d.ratio, "minimum": d.minimum, "negative": d.share_negative}
        points.append({"curve": curve, "at": {"place": place}, **values, "without": d.invalid})
    return {"points": points}


def _density(subject: Subject, *, grid: Sizes, count: Count = None, curve: str = "density") -> Row:
    """`grid` is the first and the last margin, and how many there are in all."""
    test = samples.first(subject.parts.test, count)
    d = margins.measure(subject.network, test, at=["input"], progress=False).statistics["input"]
    first, last, steps = grid
    at = [first + (last - first) * k / (int(steps) - 1) for k in range(int(steps))]
    values = d.density(at).tolist() if len(d) > 1 and d.std > 0 else [0.0] * len(at)
    points = [{"curve": curve, "at": {"margin": m}, "density": v} for m, v in zip(at, values)]
    return {"margin mean": d.mean, "margin sd": d.std, "margin mean/sd": d.ratio, "points": points}


def _embedding(subject: Subject, *, of: Sequence[str], count: Count = None, shown: int = 0, starts: int = 1) -> Row:
    row: Row = {"points": []}
    for part in of:
        some = samples.first(subject.parts.train if part == "train" else subject.parts.test, count)
        one = embedding.measured(subject.network, some, part=part, seed=subject.seed, shown=shown, starts=starts)
        row = {**row, **one, "points": row["points"] + one["points"]}
    return row


def _bounds(subject: Subject, *, r: Number, thetas: Sizes, count: Count = None, probes: int | None = None) -> Row:
    """Odn's bound and each of its terms, beside Bartlett's (odn, Theorem 1 and its remark).

    Values of both at the first of `thetas`, their terms, and two curves. "theta": the factor ((r+θ)/(r−θ))² and the
    value at every θ. "layers": stable rank, cushions, and the (2,1) norm of every layer. Bartlett's γ is the median
    output margin of the samples that are right. Biases are left out of both.
    """
    network, some = subject.network, samples.first(subject.parts.train, count)
    odn = functools.partial(bounds.odn, network, some.x, some.y, r=r, probes=probes, seed=subject.seed, biases="ignore")
    results = [odn(theta=theta) for theta in thetas]
    first = results[0]
    output = margins.measure(network, some, progress=False).output
    right = output[output > 0]
    gamma = float(right.median()) if len(right) else 1.0
    other = bounds.spectral(network, some.x, some.y, margin=gamma, reference="identity", biases="ignore")
    points: list[Row] = [
        {"curve": "theta", "at": {"theta/r": bound.theta / r}, "factor": bound.ratio, "complexity": bound.complexity}
        for bound in results
    ]
    for mine, theirs in zip(first.layers, other.layers, strict=True):
        values = {
            "stable rank": mine.stable_rank,
            "cushion": mine.cushion,
            "minimal cushion": mine.minimal_cushion,
            "share": mine.share,
            "spectral norm": theirs.spectral,
            "(2,1) norm": theirs.deviation,
        }
        points.append({"curve": "layers", "at": {"layer": mine.name}, **values})
    return {
        "odn bound": first.value,
        "odn loss": first.empirical_loss,
        "odn complexity": first.complexity,
        "contraction": first.cushions.contraction,
        "share within": first.share_within,
        "bartlett bound": other.value,
        "bartlett ramp loss": other.ramp_loss,
        "bartlett complexity": other.complexity,
        "product of spectral norms": other.product,
        "output margin": gamma,
        "points": points,
    }


def _plane(subject: Subject, *, seeds: Sequence[int], samples: bool = False) -> Row:
    """For some seeds only: the points are for a figure."""
    shown = subject.seed in seeds
    return {"points": planes.boundary_points(subject.network, subject.parts.train, samples=samples)} if shown else {}


_KINDS: dict[str, Callable[..., Row]] = {
    "attack": _attack,
    "minimal": _minimal,
    "noise": _noise,
    "margins": _margins,
    "density": _density,
    "embedding": _embedding,
    "bounds": _bounds,
    "plane": _plane,
}
