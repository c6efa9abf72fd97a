"""The linearised distance to the decision boundary, at any place and in any l_p (elsayed, eq. 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin import norms
from widemargin.checks import check_choice, check_dense, check_flag, check_floating
from widemargin.margins.output import Classes, Reading, differences
from widemargin.places import At, check_watched
from widemargin.types import Labels, Mask, PerClass, PerExample, Scores

Aggregate: TypeAlias = Literal["min", "mean", "none"]

_AGGREGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "min": lambda d: d.amin(dim=1),
    "mean": lambda d: d.mean(dim=1),
    "none": lambda d: d,
}


def distance(
    scores: Scores,
    y: Labels,
    *,
    at: At,
    p: float = 2.0,
    classes: Classes = 1,
    aggregate: Aggregate = "min",
    read_as: Reading = "logits",
    second_order: bool = False,
) -> dict[str, PerExample | PerClass]:
    """d = (f_y − f_i) / ‖∇_h f_y − ∇_h f_i‖_q at every watched place h, with q dual to p (elsayed, eq. 7).

    The l_p distance, to first order, that h must move until class i wins: signed, negative where misclassified. Exact
    where the scores are affine in h. It does not change when the scores are scaled.

    No ε is added to the denominator. Where the gradient is zero (a dead or constant network), no step reaches the
    boundary to first order, and the distance is NaN; `valid` marks the other samples. It is NaN too where the gradient
    overflows, as it may in half precision.

    Args:
        scores: the network's scores, computed inside `places.watch`.
        y: class indices, or −1.0 and +1.0 for a binary network.
        at: the places, from `places.watch`.
        p: the norm in which distance is measured, a real number in [1, ∞].
        classes: number of other classes, strongest first, or `"all"`. Each takes one backward pass for all places;
            passes of several classes are batched where that is faster (`At.columns`).
        aggregate: over those classes: the smallest distance, the mean, or `"none"` for one column per class.
        read_as: f_i as the scores themselves, or as their softmax (errata 1: inflates distances exponentially).
        second_order: keep the denominators in the graph (exact derivatives of d), instead of as constants.
    """
    check_choice("aggregate", aggregate, _AGGREGATES)
    lines = linearize(scores, y, at=at, p=p, classes=classes, read_as=read_as, second_order=second_order)
    return lines.distances(aggregate)


@dataclass(frozen=True, kw_only=True)
class Linearization:
    """Numerator and denominators of a distance: `difference` f_y − f_i, and its slope ‖∇(f_y − f_i)‖_q at every place.

    With `chosen`, the slopes at a place belong to the columns `chosen[place]` of `difference` only.
    """

    difference: PerClass
    slopes: dict[str, Float[Tensor, "batch columns"]]
    chosen: dict[str, Tensor] | None = None

    def of(self, place: str, difference: Tensor) -> Tensor:
        """The columns of `difference` that belong to the slopes at `place`."""
        return difference if self.chosen is None else difference.gather(1, self.chosen[place])

    def stacked(self) -> Float[Tensor, "places batch columns"]:
        """The slopes of all places as one tensor, in their order."""
        return torch.stack(list(self.slopes.values()))

    def beside(self, slopes: Tensor, difference: Tensor) -> Tensor:
        """`difference` in the shape of the stacked `slopes`: the same at every place unless classes were chosen."""
        if self.chosen is None:
            return difference.expand_as(slopes)
        return torch.stack([self.of(place, difference) for place in self.slopes])

    def distances(self, aggregate: Aggregate = "min") -> dict[str, PerExample | PerClass]:
        """The distances at every place, aggregated over the classes; NaN where the slope is zero."""
        reduce = _AGGREGATES[aggregate]
        return {
            name: reduce(self.of(name, self.difference) / _nan_without_slope(slope))
            for name, slope in self.slopes.items()
        }


def linearize(
    scores: Scores,
    y: Labels,
    *,
    at: At,
    p: float = 2.0,
    classes: Classes = 1,
    read_as: Reading = "logits",
    second_order: bool = False,
) -> Linearization:
    """The numerator and the denominators of `distance`, for losses that combine them in other ways."""
    q = norms.dual(p)
    check_floating(scores, "scores", "[batch, classes] or [batch]")
    check_watched(at, scores)
    check_flag("second_order", second_order)
    difference = differences(scores, y, classes=classes, read_as=read_as)
    return Linearization(difference=difference, slopes=slopes_at(at, difference, q=q, second_order=second_order))


def slopes_at(
    at: At, outputs: Float[Tensor, "batch columns"], *, q: float, second_order: bool
) -> dict[str, Float[Tensor, "batch columns"]]:
    """‖∇outputs‖_q of every sample and column at every place."""
    columns: dict[str, list[Tensor]] = {name: [] for name in at}
    for gradients in at.columns(outputs, second_order=second_order):
        for name, gradient in gradients.items():
            check_rows(name, gradient[0], samples=len(outputs))
            columns[name].append(norms.lp(gradient.flatten(0, 1), q).view(-1, len(outputs)))
    return {name: (rows[0] if len(rows) == 1 else torch.cat(rows)).T for name, rows in columns.items()}


def choose(difference: PerClass, chosen: dict[str, Tensor], *, at: At, q: float = 2.0) -> Linearization:
    """Exact slopes of one column `chosen[place]` `[batch, 1]` of `difference` at every place, by one pass a place."""
    picked = torch.cat([difference.gather(1, chosen[name]) for name in at], dim=1)
    passes = [dict(zip(part, gradients)) for part in at.columns(picked) for gradients in zip(*part.values())]
    slopes = {
        name: slope_at(name, gradients[name], q=q, samples=len(difference))[:, None]
        for name, gradients in zip(at, passes, strict=True)
    }
    return Linearization(difference=difference, slopes=slopes, chosen=chosen)


def slope_at(name: str, gradient: Tensor, *, q: float, samples: int) -> PerExample:
    """‖gradient‖_q of every sample, at the place `name`."""
    check_rows(name, gradient, samples=samples)
    return norms.lp(gradient, q)


def check_rows(name: str, gradient: Tensor, *, samples: int) -> None:
    """Raise unless the gradient at the place `name` has a row for every sample."""
    if gradient.shape[:1] != (samples,):
        raise ValueError(
            f"at has {name!r} of shape {list(gradient.shape)}, but scores have {samples} samples: "
            "a place must have the batch as its first dimension"
        )


def valid(distances: PerExample) -> Mask:
    """True for samples with a distance: those whose gradient is not zero."""
    check_dense(distances, "distances", "[batch]")
    return ~torch.isnan(distances)


def _nan_without_slope(slope: Tensor) -> Tensor:
    return torch.where((slope > 0) & (slope < torch.inf), slope, torch.full_like(slope, torch.nan))
