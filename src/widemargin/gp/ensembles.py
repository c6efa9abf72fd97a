"""Ensembles: averages of draws from the posterior, and of trained networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from widemargin.checks import (
    check_count,
    check_finite,
    check_floating,
    check_scores_and_labels,
    check_seed,
    check_several,
    check_type,
)
from widemargin.gp.posterior import Posterior, check_labels


@torch.no_grad()
def ensemble(posterior: Posterior, members: int, *, seed: int, draws: int = 1) -> Float64[Tensor, "draws test"]:
    """Predictions of `draws` ensembles, each the average of `members` functions drawn from the posterior.

    An average of m draws follows N(γ·C_1, σ^{2L}·C_2/m) (farhang (3)) and is drawn from it directly. The same seed
    gives the same Gaussian numbers on every device and for every margin, scale and number of members.
    """
    check_type("posterior", posterior, Posterior, "the result of gp.posterior")
    check_count("members", members)
    check_count("draws", draws)
    check_count("seed", seed, least=0)
    check_seed(seed)
    root = posterior.c2_root
    noise = torch.randn(draws, len(root), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    scale = posterior.sigma**posterior.depth / math.sqrt(members)
    return torch.addmm(posterior.mean, noise.to(root.device), root.T, alpha=scale)


@torch.no_grad()
def expected_accuracy(posterior: Posterior, y: Shaped[Tensor, " test"], members: int) -> float:
    """Expected accuracy of the sign of an average of `members` draws: mean of Φ(y·√m·γC_1/(σ^L·√C_2)).

    The expectation, over draws from farhang's (3), of the share of test points with y·prediction > 0; Fig. 6 (right)
    without the noise of a finite number of draws. Φ is the standard normal distribution function.
    """
    check_type("posterior", posterior, Posterior, "the result of gp.posterior")
    check_count("members", members)
    check_labels(y, len(posterior.c1), "y", "the posterior's test_x")
    signal = y.to(posterior.c1) * posterior.mean * math.sqrt(members)
    deviation = posterior.variance.sqrt()
    certain = (signal > 0).to(torch.float64)
    return float(torch.where(deviation > 0, torch.special.ndtr(signal / deviation), certain).mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """The averaged predictions [n] or [n, classes] of an ensemble of networks, and their uncertainty.

    `spread` is the standard deviation over members (with m − 1), `accuracies` for each ensemble size m the mean
    accuracy of averages of m members; empty without labels.
    """

    mean: Float64[Tensor, " *predictions"]
    spread: Float64[Tensor, " *predictions"]
    accuracies: Mapping[int, float]

    @property
    def relative_spread(self) -> float:
        """√(mean squared spread / mean squared prediction): near 0 where all members are the same function."""
        return math.sqrt(float(self.spread.square().mean() / self.mean.square().mean()))


@torch.no_grad()
def finite_ensemble(
    predictions: Float[Tensor, "members n"] | Float[Tensor, "members n classes"],
    y: Shaped[Tensor, " n"] | None = None,
    *,
    sizes: Sequence[int] | None = None,
) -> Ensemble:
    """The average and the spread of trained networks, and the accuracy of averaging m of them (farhang §6.2, §7.3).

    The averaged outputs are classified by sign for [members, n] or [members, n, 1] and labels ±1.0, by the largest
    score for [members, n, classes] and class indices; an average of 0 and a tie of the largest scores count as wrong.
    For each m, the members are divided, in order, into ⌊members/m⌋ groups of m, without the remainder, and the
    accuracies of the groups' averages are averaged.

    Members trained to a small normalized margin have a spread that is large relative to their outputs; those trained
    to a large one collapse onto one function, and their spread does not measure uncertainty (§7.3).

    Args:
        predictions: outputs of the members at the same n points.
        y: labels of the n points; without them no accuracies.
        sizes: the numbers m of members, 1, 2, 4, … by default.
    """
    check_floating(predictions, "predictions", "[members, n]")
    if predictions.ndim not in (2, 3) or predictions.numel() == 0 or len(predictions) < 2:
        shape = f"predictions has shape {list(predictions.shape)}"
        raise ValueError(f"{shape}, expected [members, n] or [members, n, classes] of at least 2 members")
    check_finite(predictions, "predictions")
    if predictions.ndim == 3 and predictions.shape[2] == 1:
        predictions = predictions.squeeze(2)
    members = len(predictions)
    if sizes is not None:
        check_several("sizes", sizes, "[1, 2, 4]")
    sizes = [2**k for k in range(members.bit_length())] if sizes is None else list(sizes)
    for index, size in enumerate(sizes):
        check_count(f"sizes[{index}]", size)
        if size > members:
            raise ValueError(f"sizes[{index}] is {size}, but predictions has {members} members")
    if y is not None:
        check_scores_and_labels(predictions[0], y)
    outputs = predictions.to(torch.float64)
    accuracies = {} if y is None else {size: _accuracy(outputs, y, size) for size in sizes}
    return Ensemble(mean=outputs.mean(0), spread=outputs.std(0), accuracies=MappingProxyType(accuracies))


def _accuracy(outputs: Tensor, y: Tensor, size: int) -> float:
    groups = len(outputs) // size
    means = outputs[: groups * size].unflatten(0, (groups, size)).mean(1)
    if means.ndim == 2:
        return float((means * y > 0).double().mean())
    top = means.topk(2, dim=2)
    alone = top.values[..., 0] > top.values[..., 1]
    return float(((top.indices[..., 0] == y) & alone).double().mean())
