"""One table, all laws: every public loss and regularizer is a row, and `test_laws.py` holds each row to every law.

`value` is the row as users write it. `singles` is the form in which a batch is its samples one by one (no statistics of
the batch, the same draws), `exact` the form whose gradient is that of the function itself, None where there is none.
`call` calls a form with the draws of a random one fixed. `hold` gives the function whose true gradient `value` has:
`value` itself, or a slow version of it in which what is detached has been made a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

import oracles_losses as slow
from oracles_wide_margin import balance, coordinate_scales, in_units_of, separation
from widemargin import attacks, losses, margins, places, regularizers
from widemargin.losses.penalties import Penalty

CLASSES = 4
PLACES = ("input", "tanh1", "output")


def smooth_network(dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """A small network without kinks, so that finite differences mean something."""
    torch.manual_seed(seed)
    layers = {"fc1": nn.Linear(6, 8), "tanh1": nn.Tanh(), "fc2": nn.Linear(8, 7), "tanh2": nn.Tanh()}
    network = nn.Sequential()
    for name, layer in (layers | {"output": nn.Linear(7, CLASSES)}).items():
        network.add_module(name, layer)
    return network.to(dtype)


def batch(size: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(size, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (size,), generator=generator)
    x[:, :CLASSES] += nn.functional.one_hot(y, CLASSES)  # classes apart, or `WideMargin` would not widen
    x = x / 2  # in [0, 1], as attacks ask
    return x.to(dtype), y


def _plain(value: Any, model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
    out = value(model, x, y)
    assert isinstance(out, Tensor)
    return out


def _with_index(value: Any, model: nn.Module, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    out = value(model, x, y, index=index)
    assert isinstance(out, Tensor)
    return out


def _with_classes(value: Any, model: nn.Module, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    drawn = (y + 1 + index % (CLASSES - 1)) % CLASSES  # never y itself, for the pairwise form
    out = value(model, x, y, classes=drawn)
    assert isinstance(out, Tensor)
    return out


def _as_images(value: Any, model: nn.Module, x: Tensor, y: Tensor, _: Tensor) -> Tensor:
    """Every sample as an image of 2 × 3 pixels, with the same crops and flips in every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        out = value(nn.Sequential(nn.Flatten(), model), x.view(-1, 1, 2, 3), y)
    assert isinstance(out, Tensor)
    return out


WIDTHS = {"input": 6, "tanh1": 8, "output": CLASSES}


def directions(value: losses.MarginLoss, index: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """The directions of `probes`, those of a sample by its index alone."""
    assert value.probes is not None
    return {
        name: torch.stack(
            [
                torch.randn(value.probes, WIDTHS[name], generator=torch.Generator().manual_seed(i), dtype=torch.float64)
                for i in index.tolist()
            ],
            dim=1,
        ).to(dtype)
        for name in value.at
    }


def _with_directions(value: Any, model: nn.Module, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    out = value(model, x, y, directions=directions(value, index, x.dtype))
    assert isinstance(out, Tensor)
    return out


Call = Callable[[Any, nn.Module, Tensor, Tensor, Tensor], Tensor]
Hold = Callable[[Any, nn.Module, Tensor, Tensor], Callable[[], Tensor]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A loss or regularizer, and the forms of it that laws are about."""

    name: str
    value: Any
    kind: Literal["data", "weight"] = "data"
    singles: Any = None
    exact: Any = None
    call: Call = _plain
    hold: Hold | None = None


def _itself(name: str, value: Any, call: Call = _plain, kind: Literal["data", "weight"] = "data") -> Row:
    return Row(name=name, value=value, kind=kind, singles=value, exact=value, call=call)


def slow_penalty(penalty: Penalty, place: int) -> Callable[[Tensor], Tensor]:
    """The penalty of one margin, branch by branch."""
    if isinstance(penalty, losses.Band):
        return lambda margin: slow.band(margin, penalty.r, penalty.theta, penalty.mu)
    return lambda margin: slow.hinge(margin, penalty.reach(place))


def _hold_margin(value: losses.MarginLoss, model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """The loss with its denominators, s̄ and H as they are now."""
    with places.watch(model, value.at) as at:
        scores = model(x)
    lines = margins.linearize(scores, y, at=at, p=value.p, classes=value.classes, read_as=value.read_as)
    return _held(value, model, x, y, lines.difference.detach(), lines.slopes)


def _held(
    value: losses.MarginLoss, model: nn.Module, x: Tensor, y: Tensor, held: Tensor, slopes: dict[str, Tensor]
) -> Callable[[], Tensor]:
    chosen = held.shape[1]
    penalties = [slow_penalty(value.penalty, place) for place in range(len(value.at))]
    steepness = [value.penalty.slope(place) for place in range(len(value.at))]

    def function() -> Tensor:
        scores = model(x)
        difference = margins.differences(scores, y, classes=chosen, read_as=value.read_as)
        if value.stabilize:
            total = slow.scale_free_margin_loss(
                difference, held, slopes, penalties=penalties, steepness=steepness, aggregate=value.aggregate
            )
        else:
            total = slow.margin_loss(
                difference, slopes, penalties=penalties, aggregate=value.aggregate, epsilon=value.epsilon
            )
        return total + value.cross_entropy * nn.functional.cross_entropy(scores, y, reduction="none")

    return function


def _hold_probed(value: losses.MarginLoss, model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """The loss with its estimated denominators, or those of its chosen classes, as they are now: class by class."""
    drawn = directions(value, torch.arange(len(x)), x.dtype)
    with places.watch(model, value.at) as at:
        scores = model(x)
    difference = margins.differences(scores, y, classes=value.classes)
    held, others = difference.detach(), range(difference.shape[1])
    gradients = [at.gradients(difference[:, i]) for i in others]
    slopes = {
        name: torch.stack([(g[name] * drawn[name]).sum(dim=2).square().mean(dim=0).sqrt() for g in gradients], dim=1)
        for name in value.at
    }
    if value.aggregate == "sum":
        m = next(iter(drawn.values())).shape[0]
        factor = math.sqrt(2 / m) * math.gamma(m / 2) / math.gamma((m - 1) / 2)
        return _held(value, model, x, y, held, {name: slope / factor for name, slope in slopes.items()})
    exact = {name: torch.stack([g[name].norm(dim=1) for g in gradients], dim=1) for name in value.at}
    columns = {}
    for place, name in enumerate(value.at):
        penalty = slow_penalty(value.penalty, place)
        costs = [[float(penalty(held[k, i] / slopes[name][k, i])) for i in others] for k in range(len(x))]
        columns[name] = torch.tensor([[row.index(max(row))] for row in costs])

    def function() -> Tensor:
        d = margins.differences(model(x), y, classes=value.classes)
        leading = columns[value.at[0]]
        s, s_bar = (t.gather(1, leading).square().mean().sqrt() for t in (d, held))
        total = d.new_zeros(len(d))
        for place, (name, column) in enumerate(columns.items()):
            picked, slope = d.gather(1, column)[:, 0], exact[name].gather(1, column)[:, 0]
            unit = 1.0
            if value.stabilize:
                floored = slope.clamp_min(0.1 * float(slope.median()))
                picked, unit = picked * (s_bar / s), float(1 / (1 / floored).mean()) / (math.sqrt(2) * len(value.at))
                slope, unit = floored, unit / max(1.0, float(s_bar))
            penalty = slow_penalty(value.penalty, place)
            total = total + unit * torch.stack(
                [penalty(m) for m in picked / (slope + (0 if value.stabilize else 1e-6))]
            )
        return total

    return function


def _hold_examples(value: attacks.Adversarial, model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    examples = value.examples(model, x, y)
    return lambda: value.loss(model, examples, y)


def _margin(name: str, **settings: Any) -> Row:
    return Row(
        name=name,
        value=losses.MarginLoss(**settings),
        singles=losses.MarginLoss(**settings, stabilize=None),
        exact=losses.MarginLoss(**settings, stabilize=None, second_order=True),
        hold=_hold_margin,
    )


def _probed(name: str, **settings: Any) -> Row:
    return Row(
        name=name,
        value=losses.MarginLoss(classes="all", **settings),
        singles=losses.MarginLoss(classes="all", **settings, stabilize=None),
        call=_with_directions,
        hold=_hold_probed,
    )


_PGD = attacks.Adversarial(epsilon=0.1, step=0.05, steps=3, random_start=False)

MARGINS = [
    _margin("hinge, input", penalty=losses.Hinge(gamma=0.7)),
    _margin("hinge, places, l_1", penalty=losses.Hinge(gamma=(0.7, 0.3, 0.2)), at=PLACES, p=1.0),
    _margin("hinge, all classes, sum", penalty=losses.Hinge(gamma=0.9), classes="all", aggregate="sum", at=PLACES),
    _margin("hinge, all classes, max, l_inf", penalty=losses.Hinge(gamma=0.1), classes="all", p=float("inf")),
    _margin("hinge, softmax", penalty=losses.Hinge(gamma=0.5), read_as="softmax"),
    _margin("hinge, cross-entropy", penalty=losses.Hinge(gamma=0.5), cross_entropy=0.3),
    _margin("band", penalty=losses.Band(r=0.6, theta=0.3, mu=0.1)),
    _probed("hinge, all classes estimated, sum", penalty=losses.Hinge(gamma=0.9), aggregate="sum", probes=3, at=PLACES),
    _probed("hinge, class chosen by a probe", penalty=losses.Hinge(gamma=0.7), probes=1, at=PLACES),
    _margin("band, p 3", penalty=losses.Band(r=0.2, theta=0.1, mu=0.5), p=3.0, at=("tanh1",)),
]

PRINTED = [
    Row(
        name=f"{row.name}, printed",
        value=row.singles,
        singles=row.singles,
        exact=row.exact,
        call=row.call,
        hold=row.hold,
    )
    for row in MARGINS
]


def _hold_wide(value: losses.WideMargin, model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """The loss with its steps, other classes and shares of the batch as they are now."""
    at_x = x.clone().requires_grad_()
    scores = model(at_x)
    other = scores.detach().scatter(1, y[:, None], -math.inf).argmax(dim=1)

    def difference(points: Tensor) -> Tensor:
        f = model(points)
        return f[range(len(y)), y] - f[range(len(y)), other]

    d = difference(at_x)
    (slope,) = torch.autograd.grad(d.sum(), at_x)
    scales = coordinate_scales(x)
    z, slope = in_units_of(scales, x), scales * slope
    nearest = torch.stack([min(torch.dist(a, b) for b, k in zip(z, y) if k != c) for a, c in zip(z, y)])
    length = min(float(z.var(dim=0, correction=0).mean().sqrt()), float(nearest.median()) / 24)
    moved = x - length * scales * slope / slope.norm(dim=1, keepdim=True)
    labels = y.tolist()
    weights = torch.tensor([balance(labels, label, rival) for label, rival in zip(labels, other.tolist())])
    weights = weights * value.strength * (float((d > 0).double().mean()) * separation(z, labels, p=2)) ** 2
    assert float(weights.min()) > 0.01

    def held() -> Tensor:
        change = difference(x) - difference(moved)
        return nn.functional.cross_entropy(model(x), y, reduction="none") + weights * change**2

    return held


ROWS = [
    *MARGINS,
    *PRINTED,
    _itself("cross-entropy", losses.CrossEntropy()),
    _itself("weights of classes", losses.Weighted(classes=(0.5, 1.0, 2.0, 1.5))),
    _itself("weights of samples", losses.Weighted(samples=tuple(0.2 * k for k in range(1, 13))), _with_index),
    _itself("label smoothing", losses.CrossEntropy(label_smoothing=0.1)),
    _itself("generalized cross-entropy", losses.GeneralizedCrossEntropy()),
    _itself("crammer-singer", losses.MultiClassHinge()),
    _itself("weston-watkins", losses.MultiClassHinge(gamma=2.0, kind="weston-watkins")),
    _itself("soft hinge", losses.SoftHinge()),
    _itself("target", losses.Target(alpha=2.0)),
    _itself("targets", losses.Target(alpha=tuple(0.1 * k for k in range(1, 13))), _with_index),
    _itself("jacobian, sum", regularizers.Jacobian(weight=0.5, form="sum")),
    _itself("jacobian, random", regularizers.Jacobian(weight=0.5, form="random"), _with_classes),
    _itself("jacobian, pairwise", regularizers.Jacobian(weight=0.5, form="pairwise", at="tanh1"), _with_classes),
    _itself("jacobian frobenius", regularizers.JacobianFrobenius(weight=0.5, projections=None)),
    _itself("weight decay", regularizers.WeightDecay(weight=0.1), kind="weight"),
    _itself("classifier", regularizers.ClassifierPenalty(weight=0.1), kind="weight"),
    Row(
        name="wide margin",
        value=losses.WideMargin(strength=3.0),
        singles=losses.WideMargin(strength=0.0),  # steps follow from the batch
        hold=_hold_wide,
    ),
    Row(
        name="crops and flips",
        value=losses.CropsAndFlips(crop=1),
        singles=losses.CropsAndFlips(crop=0, flip=False),  # draws follow from the batch
        exact=losses.CropsAndFlips(crop=1),
        call=_as_images,
    ),
    Row(name="adversarial", value=_PGD, singles=_PGD, hold=_hold_examples),
]
