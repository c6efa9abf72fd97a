"""The scales of a batch: of every coordinate, of a step towards the decision boundary, and between its classes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from widemargin.margins.class_separation import class_separation, pairwise_distances
from widemargin.margins.second_point import deviation, steps_down
from widemargin.types import wide

MAX_STEP_FRACTION = 1 / 24
"""Upper limit of the step, as a fraction of the distance to the nearest sample of another class."""

SIMILAR = 2 / 3
"""Geometric mean of relative spreads from which coordinates have one unit."""

MAX_COMPARED = 256
"""The most samples of a batch from which its scales are taken: the distances cost the square of their number."""


class DataScale(NamedTuple):
    """The scales of every network's batch."""

    coordinates: Float[Tensor, "networks 1 ..."]
    """`coordinate_scales`."""
    is_narrow: Bool[Tensor, "networks 1 ..."]
    """Whether a coordinate varies less than half as much as others, in units of these."""
    length: Float[Tensor, " networks"]
    """`step_length` in units of these."""
    separation: Float[Tensor, " networks"]
    """`class_separation` in units of these."""

    @classmethod
    def of(
        cls, points: Float[Tensor, "networks batch ..."], y: Shaped[Tensor, "networks batch"], p: float = 2.0
    ) -> DataScale:
        """The scales of a batch, of a large one those of `MAX_COMPARED` samples, evenly spread."""
        if points.shape[1] > MAX_COMPARED:
            rows = evenly_spaced(points.shape[1], MAX_COMPARED / points.shape[1], points.device)
            points, y = points[:, rows], y[:, rows]
        points, size = _near_one(points)
        scales = coordinate_scales(points)
        points = in_units_of(scales, points)
        variance = points.var(dim=1, correction=0, keepdim=True)
        is_narrow = 4 * variance < variance.flatten(1).mean(dim=1).view(-1, *[1] * (points.ndim - 1))
        distances = pairwise_distances(points, p)
        length = step_length(points, y, p, distances=distances) * size
        return cls(scales, is_narrow, length, class_separation(points, y, p, distances=distances))

    def steps_down(self, gradients: Float[Tensor, "networks batch ..."], p: float) -> Tensor:
        """The steps along which functions with these gradients fall fastest, of the length `length` in these units.

        A narrow coordinate has a gradient of at most the largest one of the others, and a unit that is smaller
        accordingly: what hardly varies may be magnified by the network, as by a batch norm. Samples whose gradient is
        not finite have a step of 0.
        """
        is_finite = (
            gradients.isfinite()
            .reshape(*gradients.shape[:2], -1)
            .all(dim=2)
            .view(*gradients.shape[:2], *[1] * (gradients.ndim - 2))
        )
        gradients = torch.where(is_finite, gradients, torch.zeros_like(gradients))
        largest = (self.coordinates * gradients).abs().amax(dim=1, keepdim=True)
        others = largest.masked_fill(self.is_narrow, 0).flatten(1).amax(dim=1).view(-1, *[1] * (gradients.ndim - 1))
        units = self.coordinates * torch.where(self.is_narrow & (largest > others), others / largest, 1.0)
        lengths = self.length.repeat_interleave(gradients.shape[1])
        steps = steps_down({"": (units * gradients).flatten(0, 1)}, {"": lengths}, p)[""]
        return (units * steps.view_as(gradients)).to(gradients.dtype)


def _near_one(points: Tensor) -> tuple[Tensor, Float[Tensor, " networks"]]:
    """The points divided by a power of 2 of about their largest deviation, and that power: squares are finite."""
    points = wide(points.detach())
    largest = (points - points.mean(dim=1, keepdim=True)).abs().flatten(1).amax(dim=1)
    exponent = torch.where(largest > 0, largest, torch.ones_like(largest)).log2().ceil().clamp(-120, 120)
    return points / exponent.exp2().view(-1, *[1] * (points.ndim - 1)), exponent.exp2()


def coordinate_scales(points: Float[Tensor, "networks batch ..."]) -> Float[Tensor, "networks 1 ..."]:
    """The unit of every coordinate: 1 for coordinates of similar spread, proportional to their spreads otherwise.

    The spread r is the standard deviation over the batch, relative to the root of the mean variance: of each feature
    for samples `[features]`, of each channel for `[channels, height, width]` and more dimensions, and for `[a, b]`, as
    a sequence of vectors, the product of those along both dimensions. Units are r^α, where α rises from 0 to 1 as the
    geometric mean of r falls from `SIMILAR` to half of it: pixels differ in spread by their meaning (of MNIST, Fashion-
    MNIST, digits and CIFAR-10 the geometric mean is 0.7 to 1), features of a table by their units of measurement (of
    the raw ones of scikit-learn it is as low as 1/500). What does not vary has 1 − α.
    """
    values = wide(points.detach())
    variance = values.var(dim=1, correction=0, keepdim=True)
    rounding = (16 * torch.finfo(values.dtype).eps) ** 2 * values.square().mean(dim=1, keepdim=True)
    variance = variance * (variance > rounding)
    dims = range(2, points.ndim)
    mean = variance.mean(dim=tuple(dims), keepdim=True) if dims else variance
    square = torch.ones_like(mean)
    for axis in dims if points.ndim <= 4 else (2,):
        others = tuple(dim for dim in dims if dim != axis)
        square = square * (variance.mean(dim=others, keepdim=True) if others else variance) / mean
    varies = (square > 0) & square.isfinite()
    spread = torch.where(varies, square, torch.ones_like(square)).sqrt()
    logs = spread.log().flatten(1).sum(dim=1) / varies.flatten(1).sum(dim=1).clamp(min=1)
    power = ((math.log(SIMILAR) - logs) / math.log(2)).clamp(0, 1).view(mean.shape)
    return torch.where(varies, spread**power, 1 - power)


def in_units_of(
    scales: Float[Tensor, "networks 1 ..."], points: Float[Tensor, "networks batch ..."]
) -> Float[Tensor, "networks batch ..."]:
    """The points less their mean, divided by `coordinate_scales`; 0 where these are 0."""
    points = wide(points.detach())
    centred = points - points.mean(dim=1, keepdim=True)
    return torch.where(scales > 0, centred / scales, torch.zeros_like(centred))


def step_length(
    points: Float[Tensor, "networks batch ..."],
    y: Shaped[Tensor, "networks batch"],
    p: float = 2.0,
    *,
    distances: Float[Tensor, "networks batch batch"] | None = None,
) -> Float[Tensor, " networks"]:
    """σ of every network's batch: the length in l_p of the steps that should hardly change a score difference.

    σ = min(√v·D^(1/p − 1/2), δ/24): v is the variance of a coordinate over the batch, the mean over the D coordinates,
    and δ the median over the samples of the l_p distance to the nearest sample with another label. In l_2 the first is
    the standard deviation along one direction; the second keeps the step far below the distance between classes, which
    in few dimensions is not much larger than the spread. A batch with one label has the first alone. For a single
    sample v is the variance over its coordinates. `distances` are those of `pairwise_distances`, if known.
    """
    wide_step = deviation(points) * points[0, 0].numel() ** (1 / p - 0.5)
    distances = pairwise_distances(points, p) if distances is None else distances
    gaps = distances.masked_fill(y[:, :, None] == y[:, None], torch.inf).amin(dim=2)
    nearest = gaps.masked_fill(gaps == torch.inf, torch.nan).nanmedian(dim=1).values
    return torch.fmin(wide_step, MAX_STEP_FRACTION * nearest)


def evenly_spaced(samples: int, fraction: float, device: torch.device) -> Tensor:
    """Evenly spaced indices of a fraction of the samples, at least one."""
    count = max(1, round(fraction * samples))
    return torch.arange(count, device=device) * samples // count
