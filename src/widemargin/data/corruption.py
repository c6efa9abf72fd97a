"""What elsayed's experiments do to data: labels flipped to another class, Gaussian noise on the inputs."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from widemargin.data.samples import Samples
from widemargin.data.seeds import generator


def flip_labels(samples: Samples, fraction: float | int, seed: int, classes: int) -> Samples:
    """Give exactly round(`fraction`·n) samples the label of another class, each other class equally likely.

    elsayed, section 4.2.1. A flipped label stays flipped: of one seed, the samples flipped at 20 % are flipped at 40 %
    too, to the same labels. `classes` is the number of classes, which the labels alone do not tell.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction}, expected a number in [0, 1]")
    if classes < 2:
        raise ValueError(f"classes is {classes}, expected at least 2: there is no other class to flip to")
    _check_class_indices(samples, classes)
    n = len(samples)
    draw = generator("flip_labels", seed)
    order = torch.randperm(n, generator=draw)
    # Every sample draws its other class, flipped or not: what one gets may not depend on how many are flipped.
    shift = torch.randint(1, classes, (n,), generator=draw)
    flipped = order[: round(fraction * n)]
    labels = samples.y.cpu().clone()
    labels[flipped] = ((labels[flipped].long() + shift[flipped]) % classes).to(labels.dtype)
    return replace(samples, y=labels.to(samples.y.device))


def add_noise(samples: Samples, sigma: float | int, seed: int) -> Samples:
    """x + σ·z with z ~ N(0, I), one draw per sample and coordinate; not clipped back to the data's range.

    elsayed, Figure 7. Of one seed, z is the same for every σ.
    """
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma is {sigma}, expected a finite number >= 0")
    if not samples.x.is_floating_point():
        raise TypeError(f"x has dtype {samples.x.dtype}, expected a floating-point tensor to add noise to")
    noise = torch.randn(samples.x.shape, generator=generator("add_noise", seed), dtype=samples.x.dtype)
    return replace(samples, x=samples.x + sigma * noise.to(samples.x.device))


def _check_class_indices(samples: Samples, classes: int) -> None:
    if samples.y.is_floating_point() or samples.y.is_complex() or samples.y.dtype == torch.bool:
        raise TypeError(f"y has dtype {samples.y.dtype}, expected class indices to flip")
    outside = ((samples.y < 0) | (samples.y >= classes)).nonzero()
    if len(outside):
        at = int(outside[0])
        raise ValueError(f"y has {int(samples.y[at])} at index {at}, but classes is {classes} (0..{classes - 1})")
