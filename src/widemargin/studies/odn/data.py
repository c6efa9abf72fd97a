"""The data and networks of odn's studies (§4.1), at the four scales."""

from __future__ import annotations

from widemargin.studies.settings import Settings

MNIST: Settings = {
    "data": {"name": "mnist", "validation": 5000, "train": None},
    "network": {"name": "odn-mnist-cnn"},
    "schedule": {"name": "cosine"},
    "steps": 20_000,
    "batch": 110,
}
"""55,000 images to train on. 110 divides 55,000, 5,500 and 550, so that (nearly) all batches are of one size."""

CIFAR10: Settings = {
    "data": {"name": "cifar10", "validation": 5000, "train": None},
    "network": {"name": "odn-alexnet"},
    "schedule": {"name": "cosine"},
    "steps": 40_000,
    "batch": 100,
}
"""45,000 images to train on."""

FRACTIONS: dict[float, Settings] = {
    0.00125: {"data.train": 68},
    0.0025: {"data.train": 137},
    0.005: {"data.train": 275},
    0.01: {"data.train": 550},
    0.05: {"data.train": 2750},
    0.1: {"data.train": 5500},
    0.25: {"data.train": 13_750},
    0.5: {"data.train": 27_500},
    1.0: {"data.train": None},
}
"""Of MNIST's 55,000: from 0.125 % on (§4.2)."""

BUDGET: Settings = {"steps": 5000, "keep": True}
"""What O1, O2 and O5 to O8 have in common at budget scale: the same networks, trained once."""

BUDGET_SEARCH: Settings = {"fraction": 0.01}
"""Where hyperparameters are chosen at that scale, for all fractions."""

SMOKE_MNIST: Settings = {
    "data": {"name": "digits", "validation": 100, "test": 100},
    "network": {"size": 8, "widths": (2, 4), "hidden": (8,)},
}
SMOKE_CIFAR10: Settings = {
    "data": {"name": "synthetic", "shape": (3, 32, 32), "samples": 60, "validation": 10, "test": 30},
    "network": {"widths": (2, 3, 3, 3, 3), "hidden": (8, 8)},
}
SMOKE: Settings = {"steps": 3, "batch": 20}

QUICK_MNIST: Settings = {
    "data": {"name": "mnist-5k", "validation": 500},
    "network": {"widths": (6, 12), "hidden": (80,)},
}
QUICK: Settings = {"steps": 200, "batch": 50}
