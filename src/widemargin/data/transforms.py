"""Seeded and fitted transforms of samples: label noise, input noise, projections and principal components."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float64
from torch import Tensor

from widemargin.checks import (
    check_class_indices,
    check_count,
    check_dense,
    check_finite,
    check_floating,
    check_number,
    check_numbers,
)
from widemargin.data.samples import Samples, check_samples
from widemargin.data.seeds import generator

TensorOrSamples = TypeVar("TensorOrSamples", Tensor, Samples)
_ROWS = 4096  # rows converted to float64 at once: all of CIFAR-10 would take 1.2 GB


def flip_labels(samples: Samples, fraction: float | int, seed: int, classes: int) -> Samples:
    """Give exactly round(`fraction`·n) samples the label of another class, each other class equally likely.

    Source: elsayed, section 4.2.1. Flips are nested: with one seed, the samples flipped at 20 % are flipped to the
    same labels at 40 %. `classes` is the number of classes, which the labels alone do not determine.
    """
    check_samples("samples", samples)
    check_number("fraction", fraction, least=0.0, most=1.0)
    check_count("classes", classes, least=2)
    check_class_indices(samples.y, classes, "y")
    n = len(samples)
    rng = generator("flip_labels", seed)
    order = torch.randperm(n, generator=rng)
    # Every sample draws its other class, flipped or not, so that its label does not depend on the fraction.
    shift = torch.randint(1, classes, (n,), generator=rng)
    flipped = order[: round(fraction * n)]
    labels = samples.y.cpu().clone()
    labels[flipped] = ((labels[flipped].long() + shift[flipped]) % classes).to(labels.dtype)
    return replace(samples, y=labels.to(samples.y.device))


def add_noise(samples: Samples, sigma: float | int, seed: int) -> Samples:
    """x + σ·z with z ~ N(0, I), one draw per sample and coordinate; not clipped to the range of the data.

    Source: elsayed, Figure 7. With one seed, z is the same for every σ.
    """
    check_samples("samples", samples)
    check_number("sigma", sigma, least=0.0)
    check_floating(samples.x, "x")
    noise = torch.randn(samples.x.shape, generator=generator("add_noise", seed), dtype=samples.x.dtype)
    return replace(samples, x=samples.x + sigma * noise.to(samples.x.device))


def to_sphere(data: TensorOrSamples) -> TensorOrSamples:
    """x·√d/‖x‖₂ for each sample x of d numbers: the sphere of radius √d (farhang, Recipe 1, step 1).

    Takes and returns samples, or a tensor [n, ...]. Raises where a sample is zero.
    """
    if isinstance(data, Samples):
        return replace(data, x=to_sphere(data.x))
    check_floating(data, "data", "[samples, ...]")
    if data.ndim < 1 or not data.numel():
        raise ValueError(f"data has shape {list(data.shape)}, expected [samples, ...] with at least one sample")
    rows = data.reshape(len(data), -1)
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    bad = (~(torch.isfinite(norms) & (norms > 0))).nonzero()
    if len(bad):
        index = int(bad[0])
        raise ValueError(f"x has norm {norms[index].item():g} at index {index}, expected a finite norm > 0")
    scaled = rows * (math.sqrt(rows.shape[1]) / norms).unsqueeze(1)
    return scaled.to(data.dtype).reshape(data.shape)


def to_unit_range(data: TensorOrSamples, bounds: tuple[float | int, float | int] | None = None) -> TensorOrSamples:
    """(x − low)/(high − low): from the range `bounds` = (low, high) to [0, 1], not clipped.

    Without `bounds`, low and high are the smallest and the largest number of this data. A test set takes the bounds
    of its training set: `to_unit_range(test, bounds=(0, 255))`. Integers become float32.
    """
    if isinstance(data, Samples):
        return replace(data, x=to_unit_range(data.x, bounds))
    check_dense(data, "data", "[samples, ...]")
    if not data.numel():
        raise ValueError(f"data has shape {list(data.shape)}, expected at least one number")
    check_finite(data, "data")
    x = data if data.is_floating_point() else data.to(torch.float32)
    if bounds is not None:
        check_numbers("bounds", bounds)
        if len(bounds) != 2:
            raise ValueError(f"bounds is {bounds}, expected a pair (low, high)")
    low, high = bounds if bounds is not None else (x.min().item(), x.max().item())
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"bounds is ({low}, {high}), expected two finite numbers, the first below the second")
    return (x - low) / (high - low)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Pca:
    """z = C(x − m): the coordinates of x along the directions of largest variance of the training data.

    Source: sokolic, section V, which reduces CIFAR-10 to 784 dimensions. m is the training mean and the rows of C are
    the unit eigenvectors of the training covariance, largest eigenvalue first, each with its largest entry positive
    (the sign of an eigenvector is arbitrary). Not whitened.

        pca = Pca.fit(data.train, 784);  data = data.map(pca)
    """

    mean: Float64[Tensor, " d"]
    components: Float64[Tensor, "dims d"]
    variance: Float64[Tensor, " dims"]

    @classmethod
    def fit(cls, train: Samples, dims: int = 784) -> Pca:
        """Fit on `train` alone, in float64."""
        check_samples("train", train)
        check_count("dims", dims)
        check_floating(train.x, "x")
        x = train.x.flatten(1)
        n, d = x.shape
        if not 1 <= dims <= min(n - 1, d):
            raise ValueError(f"dims is {dims}, expected 1..{min(n - 1, d)} for {n} samples of {d} numbers")
        mean = sum((part.double().sum(0) for part in x.split(_ROWS)), x.new_zeros(d, dtype=torch.float64)) / n
        covariance = torch.zeros(d, d, dtype=torch.float64, device=x.device)
        for part in x.split(_ROWS):
            centred = part.double() - mean
            covariance.addmm_(centred.T, centred)
        values, vectors = torch.linalg.eigh(covariance / (n - 1))
        components = vectors.T.flip(0)[:dims]
        largest = components.gather(1, components.abs().argmax(1, keepdim=True))
        return cls(mean=mean, components=components * largest.sign(), variance=values.flip(0)[:dims])

    def __call__(self, samples: Samples) -> Samples:
        """The samples in the new coordinates, x of shape [n, dims] and of the dtype it had."""
        check_floating(samples.x, "x")
        x = samples.x.flatten(1)
        if x.shape[1] != len(self.mean):
            raise ValueError(f"x has {x.shape[1]} numbers a sample, expected {len(self.mean)} as in Pca.fit")
        mean, basis = self.mean.to(x.device), self.components.to(x.device).T
        parts = [((part.double() - mean) @ basis).to(x.dtype) for part in x.split(_ROWS)]
        return replace(samples, x=torch.cat(parts))

    def __repr__(self) -> str:
        return f"Pca({len(self.mean)} -> {len(self.components)})"
