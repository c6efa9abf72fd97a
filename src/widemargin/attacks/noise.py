"""Gaussian noise on the inputs, and random numbers: a batch draws what its samples would draw in turn."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from widemargin.attacks.input_range import Bounds, Inputs, check_inputs, into_bounds
from widemargin.checks import check_number
from widemargin.data.array_arguments import takes_arrays
from widemargin.data.seeds import generator

Seed: TypeAlias = int | torch.Generator
"""A seed, which leaves torch's global generators unchanged, or a generator to draw from, on its own device."""


@takes_arrays
def gaussian(x: Inputs, sigma: float | int, seed: Seed = 0, *, bounds: Bounds = (0.0, 1.0)) -> Inputs:
    """x + σ·z with z ~ N(0, I), clipped to the range of the data (elsayed, Fig. 7, which does not mention clipping).

    For one seed, z is the same for every σ. `data.add_noise` is the same without the clip, for whole data sets.

    Args:
        x: inputs inside `bounds`: a tensor, a NumPy array or a pandas frame.
        sigma: standard deviation σ ≥ 0 of the noise.
        seed: an integer, or a CPU generator to draw from.
        bounds: the range of the data, or None.
    """
    check_number("sigma", sigma, least=0.0)
    check_inputs(x, bounds)
    z = normal(uniform(len(x), x[:1].numel(), as_generator("gaussian", seed)))
    return into_bounds(x.detach() + sigma * z.to(x).view(x.shape), bounds)


def as_generator(purpose: str, seed: Seed) -> torch.Generator:
    """`seed` itself if it is a generator, else a new one for `purpose`."""
    return seed if isinstance(seed, torch.Generator) else generator(purpose, seed)


def global_generator(device: torch.device) -> torch.Generator:
    """Torch's global generator of a GPU, whose numbers a CUDA graph draws anew in each replay, else the CPU's."""
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def uniform(rows: int, columns: int, source: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), float64, on the device of the generator, row after row."""
    return torch.rand(rows, columns, dtype=torch.float64, generator=source, device=source.device)


def normal(uniform: Tensor) -> Tensor:
    """Normal numbers by their quantiles; 2⁻⁵⁴ replaces a drawn 0, whose quantile is infinite.

    Numbers of `torch.randn` would depend on how the samples are grouped into batches.
    """
    return torch.special.ndtri(uniform.clamp_min(2.0**-54))
