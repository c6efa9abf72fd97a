"""Certified margins of scores in a ball, and the radius up to which they stay positive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin._io.progress import track
from widemargin.bounds.result import Certificate
from widemargin.certify.intervals import Box, Region, inputs, through
from widemargin.certify.relaxation import LinearBound, linear_bound
from widemargin.checks import (
    check_batch,
    check_choice,
    check_count,
    check_floating,
    check_labels,
    check_number,
    check_scores_and_labels,
)
from widemargin.data.array_arguments import takes_arrays
from widemargin.layers.forms import Affine, RootMeanSquare, Slopes, Sum
from widemargin.layers.network import PIECEWISE, Network, against, read
from widemargin.layers.trace import INPUT
from widemargin.types import Labels, PerClass, PerExample

Method: TypeAlias = Literal["crown", "crown-ibp", "ibp"]
"""Name of a relaxation: the first is the tightest and the slowest."""

FULL_UNITS = 512
"""Largest number of units before an activation that `method="crown"` bounds by backward passes of their own."""
_NUMBERS = 2**24
"""Largest number of float64 entries of a stack of rows: 128 MiB."""


@takes_arrays
def margin_bound(
    model: nn.Module, x: Tensor, y: Labels, radius: float, *, p: float = 2.0, method: Method = "crown"
) -> PerClass:
    """A lower bound of f_y(x′) − f_i(x′) over ‖x′ − x‖_p ≤ radius, for every other class i (a column each, in order).

    `"ibp"` carries intervals forward (Gowal et al. 2018). `"crown-ibp"` carries one linear bound back from the scores,
    with those intervals inside (Zhang et al. 2020), each also within reach·‖W_i‖_2 of its value at x, where the layer
    below moves by at most reach = radius·Π‖W‖_2 (as Lee et al. 2020 do), a sum over the branches of a residual sum.
    `"crown"` also bounds the units before each activation of at most `FULL_UNITS` of them by backward passes of their
    own (Zhang et al. 2018). The better of the linear bound and the interval is returned. Computed in float64 for the
    real-valued function that the weights define: it does not include the rounding of a forward pass in float32.

    Args:
        model: a network of layers with a relaxation, see `layers`, residual sums and functions of torch between them,
            used in evaluation mode.
        x: inputs.
        y: class indices, or ±1 for a network of one output, which has one column: y·f.
        radius: ≥ 0.
        p: norm of the ball, in [1, ∞].
        method: see above.
    """
    check_number("radius", radius, least=0.0)
    network = read(model, x)
    network.require(*PIECEWISE, Sum, RootMeanSquare)
    x, y = prepared(network, x, y, p, method)
    found = []
    for part, specs in chunks(network, x, y):
        radii = part.new_full((len(part),), radius)
        bound, interval = _bounds(network, part, specs, radii, p, method)
        found.append(interval if bound is None else torch.maximum(interval, bound.least(radii)))
    return torch.cat(found).cpu()


@takes_arrays
def radius(
    model: nn.Module,
    x: Tensor,
    y: Labels,
    *,
    p: float = 2.0,
    method: Method = "crown",
    steps: int = 12,
    start: PerExample | None = None,
) -> Certificate:
    """The largest r found with `margin_bound` > 0 for every other class and all ‖x′ − x‖_p ≤ r: γ_in ≥ r.

    By bisection on r, per sample. The linear bound for a radius that fails still holds in every smaller ball, and the
    radius up to which it is positive is certified too: a linear network is exact after one step. 0 for a misclassified
    sample (sokolic, errata 2).

    Args:
        model: as in `margin_bound`.
        x: inputs.
        y: labels.
        p: norm of the ball.
        method: as in `margin_bound`.
        steps: number of radii tried.
        start: the first radius, per sample and positive, best an upper bound. By default four times the radius of the
            linearised network.
    """
    check_count("steps", steps)
    check_batch(x, "x")
    if start is not None:
        check_floating(start, "start", "[batch]")
        if start.shape != (len(x),) or not bool(((start > 0) & start.isfinite()).all()):
            raise ValueError(f"start has shape {list(start.shape)}, expected one finite number > 0 per sample of x")
    values = radii(read(model, x), x, y, p, method, steps, start)
    return Certificate(what=f"{method} in l_{p:g}", values=values)


def radii(
    network: Network,
    x: Tensor,
    y: Tensor,
    p: float,
    method: Method,
    steps: int,
    start: Tensor | None,
    progress: bool | None = False,
) -> PerExample:
    """`radius` of a network that was read, with a bar if `progress`; a TypeError names what has no relaxation."""
    network.require(*PIECEWISE, Sum, RootMeanSquare)
    x, y = prepared(network, x, y, p, method)
    found, done = [], 0
    for part, specs in chunks(network, x, y):
        first = None if start is None else start[done : done + len(part)].to(part)
        radii_tried = track(range(steps), f"Certifying samples {done + 1} to {done + len(part)}", progress=progress)
        found.append(_search(network, part, specs, first, p, method, radii_tried))
        done += len(part)
    return torch.cat(found).cpu()


def _search(
    network: Network, x: Tensor, rows: Tensor, start: Tensor | None, p: float, method: Method, steps: Iterable[int]
) -> Tensor:
    nothing = x.new_zeros(len(x))
    at_x, _ = _bounds(network, x, rows, nothing, p, "crown-ibp")
    assert at_x is not None
    right = at_x.least(nothing).amin(dim=1) > 0
    if start is None:
        # In a ball of radius 0 every kink has a side, and the bound is the network's own linearisation.
        start = 4 * (at_x.at_x / at_x.slope.clamp(min=1e-30)).amin(dim=1).clamp(0, 1e9)
    good, bad, at = nothing, torch.full_like(nothing, torch.inf), torch.where(right, start, nothing)
    for _ in steps:
        bound, interval = _bounds(network, x, rows, at, p, method)
        reach = torch.where(interval > 0, at[:, None], nothing[:, None])
        if bound is not None:
            reach = torch.maximum(reach, bound.reach(at))
        reach = reach.amin(dim=1)
        good = torch.maximum(good, reach)
        bad = torch.where(reach < at, torch.minimum(bad, at), bad)
        # Up while nothing fails, down by quarters while nothing holds, and then by the geometric mean.
        between = torch.where(good > 0, (good * bad.clamp(max=1e300)).sqrt(), bad / 4)
        at = torch.where(right, torch.where(bad.isinf(), 2 * at, between), nothing)
        at = torch.where(bad <= good, good, at)
    return torch.where(right, good, nothing)


def _bounds(
    network: Network, x: Tensor, rows: Tensor, radius: Tensor, p: float, method: Method
) -> tuple[LinearBound | None, Tensor]:
    """Lower bounds of every row of the scores: linear (None for "ibp"), and by the box of the scores."""
    regions = {INPUT: inputs(x, radius, p, norms.dual(p), tubes=method != "ibp")}
    # Layers before a value that do more than move entries: the intervals after one of them are exact.
    depths = {INPUT: 0}
    for number, (step, sources) in enumerate(zip(network.steps, network.inputs)):
        source, shape = sources[0], network.shapes[number]
        if method == "crown" and isinstance(step, Slopes) and shape.numel() <= FULL_UNITS and depths[source] > 1:
            box = _tightened(network, regions, source, x, radius, p)
            regions[source] = replace(regions[source], box=box, ball=None)
        depths[number] = max(depths[part] for part in sources) + (not (isinstance(step, Affine) and step.moves))
        regions[number] = through(step, [regions[part] for part in sources])
    last = len(network.steps) - 1
    low, high = (end.reshape(len(x), 1, -1) for end in (regions[last].box.lower, regions[last].box.upper))
    interval = (rows.clamp(min=0) * low + rows.clamp(max=0) * high).sum(dim=2)
    interval = interval - 1e-14 * torch.maximum(low.abs(), high.abs()).sum(dim=2)
    if method == "ibp":
        return None, interval
    return linear_bound(network, regions, rows.view(*rows.shape[:2], *network.output), last, x, p), interval


def _tightened(network: Network, regions: dict[int, Region], number: int, x: Tensor, radius: Tensor, p: float) -> Box:
    """The box of a step's output, with linear bounds of the units that may lie on both sides of their kink."""
    box = regions[number].box
    low, high = box.lower.flatten(1).clone(), box.upper.flatten(1).clone()
    pairs = ((low < 0) & (high > 0)).nonzero()  # of samples and units
    size = max(1, _NUMBERS // (8 * network.widest))
    for samples, units in (part.T for part in pairs.split(size) if len(part)):
        rows = low.new_zeros(len(units), 2, low.shape[1])
        each = torch.arange(len(units), device=low.device)
        rows[each, 0, units], rows[each, 1, units] = 1.0, -1.0
        rows = rows.view(len(units), 2, *box.lower.shape[1:])
        least = linear_bound(network, regions, rows, number, x, p, samples).least(radius[samples])
        low[samples, units] = torch.maximum(low[samples, units], least[:, 0])
        high[samples, units] = torch.minimum(high[samples, units], -least[:, 1])
    return Box(lower=low.view_as(box.lower), upper=high.view_as(box.upper))


def prepared(network: Network, x: Tensor, y: Tensor, p: float, method: str) -> tuple[Tensor, Tensor]:
    """The inputs in float64, and the labels, after checks."""
    norms.check_p(p)
    check_choice("method", method, ("crown", "crown-ibp", "ibp"))
    check_labels(y, len(x), "y")
    labels = y.to(network.device)
    check_scores_and_labels(torch.zeros(len(x), network.output.numel(), device=network.device), labels)
    return network.double(x), labels


def chunks(network: Network, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples and rows f_y − f_i `[batch, others, outputs]`, in chunks of at most `_NUMBERS` entries."""
    outputs = network.output.numel()
    size = max(1, _NUMBERS // (max(outputs - 1, 1) * network.widest))
    for part, labels in zip(x.split(size), y.split(size)):
        yield part, against(outputs, labels)
