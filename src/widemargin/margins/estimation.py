"""Estimated l_2 distances to the boundaries of all classes, at a cost that does not grow with their number.

A Gaussian direction u at a place h gives (∇f_y − ∇f_i)·u for all classes i by one pass, whose square has the mean
‖∇f_y − ∇f_i‖². With m of them, independent, and s = ‖∇f_y − ∇f_i‖_2,

    ŝ² = (1/m) Σ_j ((∇f_y − ∇f_i)·u_j)² = s²·χ²_m/m

is unbiased; its reciprocal root, which a distance needs, is not: E[1/ŝ] = (1/s)·√m·Γ((m−1)/2)/(√2·Γ(m/2)). So

    d̂ = c_m·(f_y − f_i)/ŝ        c_m = √2·Γ(m/2)/(Γ((m−1)/2)·√m)

is unbiased, for m ≥ 2, with the variance d²·(c_m²·m/(m−2) − 1), finite from m = 3 (`relative_variance`): 57 % of d² for
m = 3, about 1/(2m) for many. Classes share the directions, so that their errors are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias, get_args

import torch
from torch import Tensor, nn

from widemargin import norms, places
from widemargin.checks import check_choice, check_count, check_dense, check_type, check_weights
from widemargin.entry_checks import check_by_sample, check_call
from widemargin.margins.distance import Linearization, check_rows
from widemargin.margins.output import Classes, Reading, differences, of_scores
from widemargin.modules import ModelInputs, NamedInputs, cast_input, evaluating, forward, mixing_modules
from widemargin.places import INPUT, At, BatchStatistics, Places
from widemargin.probabilities import read_model
from widemargin.types import Labels, PerClass

Directions: TypeAlias = Mapping[str, Tensor] | None
"""Directions `[some, batch, ...]` at every place; None: random ones."""


def estimate(
    model: nn.Module,
    x: ModelInputs,
    y: Labels,
    *,
    at: Places = (INPUT,),
    probes: int = 3,
    classes: Classes = "all",
    read_as: Reading = "logits",
    statistics: BatchStatistics | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, PerClass]:
    """d̂ of every sample and other class, strongest first, at every place: an unbiased estimate of the l_2 `distance`.

    The cost is one forward and one backward pass, and for each place and probe a pass of about the cost of a forward
    pass, whatever the number of classes. The network must not mix samples and be differentiable twice. NaN where no
    direction changes the scores.

    Args:
        model: any network, in the mode to measure it in.
        x: a batch.
        y: its labels.
        at: place names and modules, or `"all"` (`places.check_places`).
        probes: m ≥ 2 Gaussian directions; with 2 the variance is infinite.
        classes: number of other classes, strongest first.
        read_as: f_i as the scores themselves, as their softmax, or from probabilities that the network returns.
        statistics: `"frozen"` for a network with BatchNorm in training mode.
        generator: of the directions, on the device of `x`; torch's own of that device by default.
    """
    check_choice("read_as", read_as, get_args(Reading))
    check_type("generator", generator, (torch.Generator, type(None)), "a torch.Generator or None")
    factor, model = correction(probes), read_model(model, read_as)
    names = places.check_places(model, at)
    with evaluating(model):
        mixes = bool(mixing_modules(model))  # without running statistics: for `statistics` to choose
    if not isinstance(x, NamedInputs):
        check_dense(x, "x", "[batch, ...]")
    x = cast_input(model, x)
    if not mixes and isinstance(x, Tensor) and x.is_floating_point():
        check_call(model, x, y)
    elif not mixes:
        check_weights(model)
        check_by_sample(model, x, names)
    with places.watch(model, names, statistics=statistics) as watched, torch.enable_grad():
        scores = forward(model, x)
    difference = differences(scores, y, classes=classes, read_as=of_scores(read_as))
    slopes = probed(difference, at=watched, directions=draw(watched, probes, generator))
    lines = Linearization(difference=difference.detach(), slopes={name: s / factor for name, s in slopes.items()})
    return lines.distances("none")


def correction(probes: int) -> float:
    """c_m = √2·Γ(m/2)/(Γ((m−1)/2)·√m), which makes the estimated distance unbiased; m ≥ 2."""
    check_count("probes", probes, least=2)
    return math.sqrt(2 / probes) * math.exp(math.lgamma(probes / 2) - math.lgamma((probes - 1) / 2))


def relative_variance(probes: int) -> float:
    """Var(d̂)/d² = c_m²·m/(m − 2) − 1, from E[1/χ²_m] = 1/(m − 2); infinite for m = 2."""
    factor = correction(probes)
    return math.inf if probes == 2 else factor**2 * probes / (probes - 2) - 1


def draw(at: At, probes: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """Independent Gaussian directions `[probes, *shape of the place]` at every place, drawn on its device."""
    dtypes = {name: torch.promote_types(zero.dtype, torch.float32) for name, zero in at.items()}
    return {
        name: torch.randn(probes, *zero.shape, generator=generator, device=zero.device, dtype=dtypes[name])
        for name, zero in at.items()
    }


def probed(difference: PerClass, *, at: At, directions: Mapping[str, Tensor]) -> dict[str, PerClass]:
    """ŝ at every place: the root of the mean square of the derivatives of `difference` along the directions."""
    derivatives = at.along(difference, directions)
    for name in at:
        check_rows(name, directions[name][0], samples=len(difference))
    # As an l_2 norm over the probes, which does not overflow; constants for the gradient, as a distance's slopes are.
    return {
        name: norms.lp(d.detach().flatten(1).T, 2.0).view_as(difference) / math.sqrt(len(d))
        for name, d in derivatives.items()
    }
