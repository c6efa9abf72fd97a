"""Which samples: a validation set held out, and subsets that lie inside one another."""

from __future__ import annotations

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from widemargin.data.samples import Samples
from widemargin.data.seeds import generator


def holdout(samples: Samples, count: int, seed: int) -> tuple[Samples, Samples]:
    """Hold `count` samples out: `(train, validation)`, disjoint, together all of `samples`.

    Drawn uniformly without replacement (elsayed, section 4.2, holds out 5,000 of MNIST's 60,000). Both parts keep the
    order of `samples`.
    """
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
    """The first `count` samples, or round(`fraction`·n), of a fixed random order that depends on `seed` alone.

    So a smaller subset is the beginning of every larger one of the same seed: the 1 % lies inside the 5 %. With
    `balanced` the order takes the classes in turn, and the classes' counts differ by at most one at every length. A
    subset that would leave a class of `samples` empty is an error, in both modes.
    """
    size = _size(len(samples), count, fraction)
    labels = samples.y.cpu()
    order = torch.randperm(len(samples), generator=generator("subset", seed))
    classes, of = labels.unique(return_inverse=True)
    if balanced:
        _check_enough(classes, of, size)
        order = _in_turn(order, of, len(classes))
    chosen = order[:size]
    _check_no_class_empty(classes, of[chosen], size, len(samples), seed)
    return samples.select(chosen)


def _size(n: int, count: int | None, fraction: float | int | None) -> int:
    if (count is None) == (fraction is None):
        raise ValueError(f"count is {count} and fraction is {fraction}, expected exactly one of them")
    if fraction is not None:
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction is {fraction}, expected a number in (0, 1]")
        count = round(fraction * n)
        if count == 0:
            raise ValueError(f"fraction is {fraction}, which is less than one of the {n} samples")
    if count is None or not 1 <= count <= n:
        raise ValueError(f"count is {count}, expected 1..{n}, the number of samples")
    return count


def _in_turn(order: Int[Tensor, " n"], of: Int[Tensor, " n"], classes: int) -> Int[Tensor, " n"]:
    """`order`, rearranged so that one sample of each class comes before the second of any."""
    turn = torch.empty_like(order)
    for k in range(classes):
        members = (of[order] == k).nonzero()[:, 0]
        turn[members] = torch.arange(len(members))
    return order[torch.argsort(turn * classes + of[order])]


def _check_enough(classes: Shaped[Tensor, " c"], of: Int[Tensor, " n"], size: int) -> None:
    have = torch.bincount(of, minlength=len(classes))
    for k in range(len(classes)):
        need = size // len(classes) + (k < size % len(classes))
        if have[k] < need:
            raise ValueError(
                f"class {classes[k].item():g} has {int(have[k])} samples, but a balanced subset of {size} over "
                f"{len(classes)} classes takes {need} of it"
            )


def _check_no_class_empty(classes: Shaped[Tensor, " c"], of: Int[Tensor, " k"], size: int, n: int, seed: int) -> None:
    empty = (torch.bincount(of, minlength=len(classes)) == 0).nonzero()[:, 0]
    if len(empty):
        names = ", ".join(f"{classes[k].item():g}" for k in empty.tolist())
        raise ValueError(
            f"a subset of {size} of the {n} samples with seed {seed} leaves class {names} empty, "
            "expected at least one sample of each class: take more, or another seed"
        )
