"""Accuracies of many networks, on inputs projected to the sphere of the recipe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.checks import check_floating
from widemargin.data import Samples, to_sphere
from widemargin.data.samples import check_samples
from widemargin.margins.measurement import accuracy


def accuracies(networks: Sequence[nn.Module], samples: Samples) -> Float[Tensor, " networks"]:
    """The accuracy of each network on `samples`, projected to the sphere of radius √d_0."""
    points = on_the_sphere(samples, networks[0], "test")
    return torch.tensor([accuracy(network, points) for network in networks], dtype=torch.float64)


def on_the_sphere(samples: Samples, like: nn.Module, name: str = "train") -> Samples:
    """`samples` on the sphere of radius √d_0, on the device and in the dtype of the weights of `like`."""
    check_samples(name, samples)
    check_floating(samples.x, "x")
    weight = next(like.parameters())
    return Samples(to_sphere(samples.x.to(weight.device, weight.dtype)), samples.y.to(weight.device))
