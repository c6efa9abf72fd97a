"""Two half-moons in the plane, for pictures of decision boundaries and margins."""

from __future__ import annotations

import math

import torch

from widemargin.data.samples import Data, Samples
from widemargin.data.seeds import generator

_PER_CLASS = 200
_NOISE = 0.12


def load_toy() -> Data:
    """200 points of each of two classes in each part: (cos t, ±sin t) with t uniform in [0, π], shifted to interleave.

    Class 0 is the upper moon about (−½, −¼), class 1 the lower about (½, ¼); Gaussian noise of deviation 0.12. The
    classes are nearly separable, but not linearly. The points are the same on every machine.
    """
    return Data("toy", _moons("train"), _moons("test"), ("upper moon", "lower moon"), None)


def _moons(split: str) -> Samples:
    rng = generator(f"toy {split}", 0)
    y = torch.arange(2).repeat(_PER_CLASS)
    sign = 1.0 - 2.0 * y
    t = math.pi * torch.rand(2 * _PER_CLASS, generator=rng, dtype=torch.float64)
    points = torch.stack((t.cos() - 0.5 * sign, sign * (t.sin() - 0.25)), dim=1)
    points += _NOISE * torch.randn(points.shape, generator=rng, dtype=torch.float64)
    return Samples(points.float(), y)
