"""What a final trial of `classify` may measure on test data beside its accuracy: values of `settings["measure"]`.

    {"kind": "attack", "attack": "fgsm", "epsilons": […]}       white-box curve; also "ifgsm", "pgd"; `steps` for those
    {"kind": "attack", …, "source": {"arm": "cross-entropy"}}   black-box: made on that arm's network of the same seed
    {"kind": "attack", …, "target": {"arm": "cross-entropy"}}   the accuracy of that arm's network under attacks on ours
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
from collections.abc import Callable
from typing import Any

from torch import nn

from widemargin import attacks, margins
from widemargin.registry import argument
from widemargin.studies import bound_terms, boundary_points, embedding, samples
from widemargin.studies.rows import Row
from widemargin.studies.settings import Settings

Networks = Callable[[Settings], nn.Module]
"""The trained network of some settings, for attacks that are made elsewhere."""


def take(asked: Settings, network: nn.Module, parts: samples.Parts, seed: int, networks: Networks) -> Row:
    """Metrics, and points of curves under `"points"`."""
    given = {key: value for key, value in asked.items() if key != "kind"}
    if asked.get("kind") not in _KINDS:
        raise ValueError(f"kind of a measurement is {asked.get('kind')!r}, expected one of {', '.join(_KINDS)}")
    return _KINDS[asked["kind"]](network, parts, seed, networks, **given)


def _attack(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,
    networks: Networks,
    *,
    attack: str,
    epsilons: list[float | int],
    source: Settings | None = None,
    target: Settings | None = None,
    count: int | None = None,
    curve: str | None = None,
    **settings: Any,
) -> Row:
    moved: Any = attack
    if settings:
        moved = functools.partial(getattr(attacks, attack), **settings)
    if source is not None and target is not None:
        raise ValueError("an attack has a source and a target, expected one of them: the other is the trial's network")
    maker = network if target is not None else None if source is None else networks(source)
    rows = attacks.curve(
        network if target is None else networks(target),
        samples.first(parts.test, count),
        epsilons,
        attack=moved,
        source=maker,
        bounds=parts.whole.bounds,
        seed=seed,
        batch_size=1000,
        progress=False,
    )
    name = attack if curve is None else curve
    return {"points": [{"curve": name, "at": {"epsilon": r["epsilon"]}, "accuracy": r["accuracy"]} for r in rows]}


def _noise(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,
    networks: Networks,  # noqa: ARG001
    *,
    sigmas: list[float | int],
    count: int | None = None,
    curve: str = "noise",
) -> Row:
    rows = attacks.curve(
        network,
        samples.first(parts.test, count),
        sigmas,
        attack="gaussian",
        bounds=None,  # elsayed, Figure 7: not clipped back
        seed=seed,
        batch_size=1000,
        progress=False,
    )
    return {"points": [{"curve": curve, "at": {"sigma": r["epsilon"]}, "accuracy": r["accuracy"]} for r in rows]}


def _margins(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,  # noqa: ARG001
    networks: Networks,  # noqa: ARG001
    *,
    p: Any = 2.0,
    at: list[str] | None = None,
    classes: Any = 1,
    scores: Any = "logits",
    count: int | None = None,
    curve: str = "margins",
) -> Row:
    measured = margins.measure(
        network,
        samples.first(parts.test, count),
        at=at or ["input"],
        p=float(argument(p)),
        classes=classes,
        read_as=scores,
        progress=False,
    )
    points = []
    for place, d in measured.statistics.items():
        found = {"mean": d.mean, "sd": d.std, "mean/sd": d.ratio, "minimum": d.minimum, "negative": d.share_negative}
        found["without"] = d.invalid
        points.append({"curve": curve, "at": {"place": place}, **found})
    return {"points": points}


def _density(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,  # noqa: ARG001
    networks: Networks,  # noqa: ARG001
    *,
    grid: list[float | int],
    count: int | None = None,
    curve: str = "density",
) -> Row:
    """`grid` is the first and the last margin and how many there are between them, both included."""
    found = margins.measure(network, samples.first(parts.test, count), at=["input"], progress=False)
    d = found.statistics["input"]
    first, last, steps = grid
    places = [first + (last - first) * k / (int(steps) - 1) for k in range(int(steps))]
    values = d.density(places).tolist() if len(d) > 1 and d.std > 0 else [0.0] * len(places)
    points = [{"curve": curve, "at": {"margin": m}, "density": v} for m, v in zip(places, values)]
    return {"margin mean": d.mean, "margin sd": d.std, "margin mean/sd": d.ratio, "points": points}


def _embedding(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,
    networks: Networks,  # noqa: ARG001
    *,
    of: list[str],
    count: int | None = None,
    shown: int = 0,
) -> Row:
    found: Row = {"points": []}
    for part in of:
        some = samples.first(parts.train if part == "train" else parts.test, count)
        one = embedding.measured(network, some, part=part, seed=seed, shown=shown)
        found["points"] += one.pop("points")
        found.update(one)
    return found


def _bounds(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,
    networks: Networks,  # noqa: ARG001
    *,
    r: float,
    thetas: list[float | int],
    count: int | None = None,
    probes: int | None = None,
) -> Row:
    some = samples.first(parts.train, count)
    return bound_terms.measured(network, some, r=r, thetas=thetas, probes=probes, seed=seed)


def _plane(
    network: nn.Module,
    parts: samples.Parts,
    seed: int,
    networks: Networks,  # noqa: ARG001
    *,
    seeds: list[int],
    samples: bool = False,
) -> Row:
    """Of some seeds alone: the points are for a picture."""
    return boundary_points.measured(network, parts.train, samples=samples) if seed in seeds else {}


_KINDS: dict[str, Callable[..., Row]] = {
    "attack": _attack,
    "noise": _noise,
    "margins": _margins,
    "density": _density,
    "embedding": _embedding,
    "bounds": _bounds,
    "plane": _plane,
}
