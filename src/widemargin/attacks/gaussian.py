"""Gaussian noise on the inputs: no attack, but measured beside them."""

from __future__ import annotations

from widemargin.attacks.arguments import Bounds, Inputs, check_inputs, check_size, into_bounds
from widemargin.attacks.rng import Seed, as_generator, normal, uniform


def gaussian(x: Inputs, sigma: float | int, seed: Seed = 0, *, bounds: Bounds = (0.0, 1.0)) -> Inputs:
    """x + σ·z with z ~ N(0, I), clipped to the range of the data (elsayed, Fig. 7, which does not speak of clipping).

    Of one seed, z is the same for every σ. `data.add_noise` is the same without the clip, for whole data sets.

    Args:
        x: inputs inside `bounds`.
        sigma: standard deviation σ ≥ 0 of the noise.
        seed: an integer, or a CPU generator to take the numbers from.
        bounds: the range of the data, or None.
    """
    check_size("sigma", sigma)
    check_inputs(x, bounds)
    z = normal(uniform(len(x), x[:1].numel(), as_generator("gaussian", seed)))
    return into_bounds(x.detach() + sigma * z.to(x).view(x.shape), bounds)
