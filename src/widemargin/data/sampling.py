"""Held-out validation sets and nested random subsets."""

from __future__ import annotations

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from widemargin.checks import check_count, check_flag, check_number
from widemargin.data.samples import Samples, check_samples
from widemargin.data.seeds import generator


def holdout(samples: Samples, count: int, seed: int) -> tuple[Samples, Samples]:
    """`(train, validation)`: a disjoint split of `samples`, with `count` of them in `validation`.

    Drawn uniformly without replacement (elsayed, section 4.2, holds out 5,000 of MNIST's 60,000). Both parts keep the
    order of `samples`.
    """
    check_samples("samples", samples)
    check_count("count", count)
    if not 1 <= count < len(samples):
        raise ValueError(f"count is {count}, expected 1..{len(samples) - 1} of the {len(samples)} samples to hold out")
    order = torch.randperm(len(samples), generator=generator("holdout", seed))
    return samples.select(order[count:].sort().values), samples.select(order[:count].sort().values)


def subset(
    samples: Samples,
    *,
    count: int | None = None,
    fraction: float | int | None = None,
    seed: int,
    balanced: bool = False,
) -> Samples:
    """The first `count` samples, or round(`fraction`·n), of a random order that depends on `seed` alone.

    Subsets are nested: a smaller one is the beginning of every larger one of the same seed. With `balanced` the order
    takes the classes in turn, and their counts differ by at most one at every length. Raises where a class of
    `samples` would be empty.
    """
    check_samples("samples", samples)
    check_flag("balanced", balanced)
    size = _size(len(samples), count, fraction)
    labels = samples.y.cpu()
    order = torch.randperm(len(samples), generator=generator("subset", seed))
    classes, class_of = labels.unique(return_inverse=True)
    if balanced:
        _check_enough(classes, class_of, size)
        order = _in_turn(order, class_of, len(classes))
    chosen = order[:size]
    empty = (torch.bincount(class_of[chosen], minlength=len(classes)) == 0).nonzero()[:, 0]
    if len(empty):
        names = ", ".join(f"{classes[k].item():g}" for k in empty.tolist())
        raise ValueError(
            f"count is {size} of {len(samples)} samples, but with seed {seed} it leaves class {names} empty: "
            "increase it or change the seed"
        )
    return samples.select(chosen)


def _size(n: int, count: int | None, fraction: float | int | None) -> int:
    if count is not None:
        check_count("count", count)
    if fraction is not None:
        check_number("fraction", fraction, above=0.0, most=1.0)
    if (count is None) == (fraction is None):
        raise ValueError(f"count is {count} and fraction is {fraction}, expected exactly one of them")
    if fraction is not None:
        count = round(fraction * n)
        if count == 0:
            raise ValueError(f"fraction is {fraction}, which is less than one of the {n} samples")
    if count is None or not 1 <= count <= n:
        raise ValueError(f"count is {count}, expected 1..{n}, the number of samples")
    return count


def _in_turn(order: Int[Tensor, " n"], class_of: Int[Tensor, " n"], classes: int) -> Int[Tensor, " n"]:
    """`order`, rearranged so that one sample of each class comes before the second of any."""
    turn = torch.empty_like(order)
    for k in range(classes):
        members = (class_of[order] == k).nonzero()[:, 0]
        turn[members] = torch.arange(len(members))
    return order[torch.argsort(turn * classes + class_of[order])]


def _check_enough(classes: Shaped[Tensor, " c"], class_of: Int[Tensor, " n"], size: int) -> None:
    for k, available in enumerate(torch.bincount(class_of, minlength=len(classes)).tolist()):
        needed = size // len(classes) + (k < size % len(classes))
        if available < needed:
            raise ValueError(
                f"class {classes[k].item():g} has {available} samples, but a balanced subset of {size} over "
                f"{len(classes)} classes needs {needed} of it"
            )
