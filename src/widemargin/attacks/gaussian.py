"""Gaussian noise on the inputs, measured beside attacks."""

from __future__ import annotations

from widemargin.attacks.input_range import Bounds, Inputs, check_inputs, into_bounds
from widemargin.attacks.rng import Seed, as_generator, normal, uniform
from widemargin.checks import check_number


def gaussian(x: Inputs, sigma: float | int, seed: Seed = 0, *, bounds: Bounds = (0.0, 1.0)) -> Inputs:
    """x + σ·z with z ~ N(0, I), clipped to the range of the data (elsayed, Fig. 7, which does not mention clipping).

    For one seed, z is the same for every σ. `data.add_noise` is the same without the clip, for whole data sets.

    Args:
        x: inputs inside `bounds`.
        sigma: standard deviation σ ≥ 0 of the noise.
        seed: an integer, or a CPU generator to draw from.
        bounds: the range of the data, or None.
    """
    check_number("sigma", sigma, least=0.0)
    check_inputs(x, bounds)
    z = normal(uniform(len(x), x[:1].numel(), as_generator("gaussian", seed)))
    return into_bounds(x.detach() + sigma * z.to(x).view(x.shape), bounds)
