"""Student's t: quantiles, p-values, Holm's procedure and the smallest effect that a sample could have shown."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

LEVEL = 0.025
"""Error rate on each side: intervals are of 95 %."""

FEWEST = 3
"""Fewest seeds with an interval: a standard deviation of two seeds is off by a factor of 2 half of the time."""

POWER = 0.8
"""The probability with which the smallest visible effect would have stood out."""


@functools.cache
def quantile(seeds: int, below: float = 1 - LEVEL) -> float:
    """The quantile of Student's t for a mean of `seeds` values: 4.3 for three, 2.3 for ten; infinity for fewer."""
    from scipy.special import stdtrit

    return math.inf if seeds < FEWEST else float(stdtrit(seeds - 1, below))


def half_width(error: float, seeds: int) -> float:
    """Half of the 95 % interval of a mean."""
    return math.inf if seeds < FEWEST else quantile(seeds) * error


def p_above(mean: float, error: float | None, seeds: int) -> float:
    """The one-sided p-value of "the mean is not above 0"; 1 for fewer than three seeds."""
    from scipy.special import stdtr

    if error is None or seeds < FEWEST:
        return 1.0
    if error == 0:
        return 0.5 if mean == 0 else float(mean < 0)
    return float(stdtr(seeds - 1, -mean / error))


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which hypotheses Holm's procedure rejects: any of them falsely with probability `level` at most."""
    rejected = [False] * len(p_values)
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[i] > level / (len(p_values) - rank):
            break
        rejected[i] = True
    return rejected


def smallest_visible(error: float | None, seeds: int) -> float | None:
    """The effect that stands out with probability 0.8, given the standard error; None for fewer than three seeds."""
    return None if error is None or seeds < FEWEST else (quantile(seeds) + quantile(seeds, POWER)) * error


def prediction(sd: float, seeds: int) -> float:
    """Half the width of the interval that the value of one more seed is in, with probability 0.95."""
    return math.inf if seeds < FEWEST else quantile(seeds) * sd * math.sqrt(1 + 1 / seeds)
