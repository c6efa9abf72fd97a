"""Data and networks of odn's studies (§4.1), at the four scales."""

from __future__ import annotations

from collections.abc import Mapping

from widemargin.studies.settings import Settings


def _images(name: str, network: str, steps: int, batch: int) -> Settings:
    data = {"name": name, "validation": 5000, "train": None}
    return {"data": data, "network": {"name": network}, "schedule": {"name": "cosine"}, "steps": steps, "batch": batch}


def _fractions(counts: Mapping[float, int | None]) -> dict[float, Settings]:
    return {fraction: {"data.train": count} for fraction, count in counts.items()}


MNIST = _images("mnist", "odn-mnist-cnn", 20_000, 110)
"""55,000 images to train on. 110 divides 55,000, 5,500 and 550, so that (nearly) all batches are of one size."""

CIFAR10 = _images("cifar10", "odn-alexnet", 40_000, 100)
"""45,000 images to train on."""

ALEXNET: Settings = {**CIFAR10, "network": {"name": "odn-alexnet", "he": True}, "augmentation": None, "keep": False}
"""For the task `augmented`, since the networks fill a GPU by themselves; no other study has them."""

HE = (
    "Weights start as He et al. (2015) have them; the paper does not say. With PyTorch's own the scores of different "
    "images hardly differ at first, and ODN made them equal at rates of 0.001 to 0.03 (a quarter of the channels, 450 "
    "images, 150 steps or more on a CPU)."
)

IN_BFLOAT16: Settings = {"precision": "bfloat16", "channels_last": True}
"""As a CUDA graph on one H200: by arithmetic 1.3 ms a step of cross-entropy, 1.8 of a margin at the input."""

FRACTIONS = _fractions(
    {0.00125: 68, 0.0025: 137, 0.005: 275, 0.01: 550, 0.05: 2750, 0.1: 5500, 0.25: 13_750, 0.5: 27_500, 1.0: None}
)
"""Of MNIST's 55,000: from 0.125 % on (§4.2)."""

FRACTIONS_OF_CIFAR10 = _fractions({0.005: 225, 0.01: 450, 0.05: 2250, 0.1: 4500, 0.25: 11_250, 0.5: 22_500, 1.0: None})

BUDGET: Settings = {"steps": 5000, "keep": True}
"""Common to O1, O2 and O5 to O8 at budget scale: the same networks, trained once."""

BUDGET_SEARCH: Settings = {"fraction": 0.01}
"""The fraction at which hyperparameters are chosen at that scale."""

SMOKE_MNIST: Settings = {
    "data": {"name": "digits", "validation": 100, "test": 100},
    "network": {"size": 8, "widths": (2, 4), "hidden": (8,)},
} | {"steps": 3, "batch": 20}
SMOKE_CIFAR10: Settings = {
    "data": {"name": "synthetic", "shape": (3, 32, 32), "samples": 60, "validation": 10, "test": 30},
    "network": {"widths": (2, 3, 3, 3, 3), "hidden": (8, 8)},
} | {"steps": 3, "batch": 20}
QUICK_MNIST: Settings = {
    "data": {"name": "mnist-5k", "validation": 500},
    "network": {"widths": (6, 12), "hidden": (80,)},
} | {"steps": 200, "batch": 50}
QUICK_CIFAR10: Settings = {
    "data": {"name": "synthetic", "shape": (3, 32, 32), "samples": 700, "validation": 200},
    "network": {"widths": (8, 16, 16, 16, 16), "hidden": (64, 64)},
} | {"steps": 40, "batch": 50}
