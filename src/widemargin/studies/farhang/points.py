"""Shared parts of farhang's studies: data on the sphere, networks without biases, Nero (Recipe 1, appendix A)."""

from __future__ import annotations

from widemargin.studies.settings import Settings

MNIST: Settings = {"name": "mnist", "train": 1000, "standardize": [0.1307, 0.3081]}
"""Points of MNIST, standardised as in the authors' code and projected to the sphere of radius √784."""

SMALL: Settings = {"data.name": "digits", "data.test": 200, "network.inputs": 64}
"""For a smoke test: digits of 8 × 8 pixels, seconds."""

EMBEDDED: Settings = {"data.name": "mnist-5k"}
"""Without a download: the 5,000 images of mnist-5k."""

NERO: Settings = {"name": "nero", "lr": 0.01}


def mlp(width: int, depth: int, **more: float | int) -> Settings:
    """The fully connected network without biases."""
    return {"name": "farhang-mlp", "inputs": 784, "width": width, "depth": depth, **more}


def decay(factor: float = 0.999) -> Settings:
    """A learning rate that is multiplied by `factor` in every step."""
    return {"name": "exponential", "factor": factor, "unit": "steps"}


SPHERE = "Inputs are (x − 0.1307)/0.3081, then projected to the sphere, as in the authors' code."
MARGIN = "Margins are f_y − max f_i; the authors' code takes f_y − f_0 in Figures 1 to 3."
