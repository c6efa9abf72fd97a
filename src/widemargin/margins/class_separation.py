"""Separation of the classes of a batch: class means that are far apart, or neighbours of one class."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from widemargin.types import wide

CLEAR = 10.0
"""The variance between classes, over the mean variance of a coordinate, from which classes are clearly separated."""


def class_separation(
    points: Float[Tensor, "networks batch ..."],
    y: Shaped[Tensor, "networks batch"],
    p: float = 2.0,
    *,
    distances: Float[Tensor, "networks batch batch"] | None = None,
) -> Float[Tensor, " networks"]:
    """c in [0, 1] of every network's batch: 1 where classes are clearly separated, 0 where they are one cloud.

    c = max(κ³, min(1, (S/10)²)):

    - S = b/v, with v the mean variance of a coordinate and b the variance of the class means, the sum over coordinates.
      b is the upper end of its 95 % interval: an unbiased estimate, and two of its standard errors where the classes
      have one mean. So noisy labels and small batches do not make S small, but a batch that shows equal means does.
    - κ is the share of samples whose nearest neighbour in l_p has the same label, corrected for chance:
      (share − chance)/(1 − chance), and 0 where that is negative.

    With one label alone c is 0: such a batch does not show how far other classes are. With no label twice c cannot be
    estimated, and is 1. `distances` are those of `pairwise_distances`, if they are known.
    """
    flat = _centred(points)
    samples, width = flat.shape[1:]
    same = y[:, :, None] == y[:, None]
    counts = same.sum(dim=2).to(flat.dtype)
    classes = (1 / counts).sum(dim=1).round()
    centers = same.to(flat.dtype) @ flat / counts[:, :, None]
    rest, free = flat - centers, samples - classes
    between, within = (part.square().sum(dim=(1, 2)) for part in (centers, rest))
    products = (rest @ rest.mT).square().sum(dim=(1, 2))
    squares = (products - within.square() / free).clamp(min=0) / free.square()  # the trace of the covariance squared
    error = (2 * (classes - 1) * (1 + (classes - 1) / free) * squares).sqrt()
    spread = (between - (classes - 1) / free * within + 2 * error) * width / (between + within)
    distances = torch.cdist(flat, flat, p=p) if distances is None else distances
    itself = torch.eye(samples, dtype=torch.bool, device=y.device)
    own, other = (distances.masked_fill(mask, torch.inf).amin(dim=2) for mask in (~same | itself, same))
    chance = (counts - 1).mean(dim=1) / (samples - 1)
    agreement = ((own < other).to(flat.dtype).mean(dim=1) - chance) / (1 - chance)
    found = torch.fmax(agreement.clamp(0, 1) ** 3, (spread / CLEAR).clamp(0, 1) ** 2)
    return torch.where(classes < samples, found.nan_to_num(0.0), 1.0) * (classes > 1)


def pairwise_distances(
    points: Float[Tensor, "networks batch ..."], p: float = 2.0
) -> Float[Tensor, "networks batch batch"]:
    """The l_p distances between the samples of every network's batch."""
    flat = _centred(points)
    return torch.cdist(flat, flat, p=p)


def _centred(points: Tensor) -> Tensor:
    """The samples as rows, less their mean: far from 0, l_2 distances by matrix products would lose precision."""
    flat = wide(points.detach().reshape(*points.shape[:2], -1))
    return flat - flat.mean(dim=1, keepdim=True)
