"""Sokolic's bounds of the generalization error of a trained network: (21), (22), and Theorems 1 and 4.

Settings: those of `classify` that train a network, and

    exact     True on the plane: the input margin is exact; elsewhere the estimate of (19) stands for it
    mixture   [Gaussians, rank] of the covering number of a Gaussian mixture
    sparse    [atoms, sparsity] of that of a sparse dictionary
    delta     the probability that the bound fails

Row: `gap` (|training error − test error|), `margin` (the smallest input margin of the training samples that are right),
`right` (their share), `log10 (21)` and `log10 (21), product 1` (with ‖v‖ Π‖W‖_F = 1), `log10 (22)` of the mixture, and
the curve "coverings": at each `covering` ln N_{γ/2} as `ln N` and the bound of Theorem 1 as `log10 bound`. Where a
training sample is misclassified the theorems say nothing: its margin is left out, and `right` tells.
"""

from __future__ import annotations

import math

import torch

from widemargin import bounds
from widemargin.bounds.covering import Covering
from widemargin.data import Samples
from widemargin.margins.measurement import accuracy
from widemargin.studies import planes
from widemargin.studies.rows import Row
from widemargin.studies.tasks import classify
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
_OWN = ("exact", "mixture", "sparse", "delta")


def run(trial: Trial, context: TrialContext) -> Row:
    """One network."""
    given = trial.settings
    network, parts = classify.train_double(trial, _OWN, context)
    train = Samples(parts.train.x.double(), parts.train.y)
    if given["exact"]:
        margins = planes.input_margins(network, train)
    else:
        bound = bounds.input_margin(network, train.x, train.y, seed=trial.seed).jacobian
        assert bound is not None
        margins = bound.values
    frobenius = bounds.neyshabur(network, train.x, biases="ignore")
    fixed = math.log10(2.0) * frobenius.depth - math.log10(len(train)) / 2
    accuracies = [accuracy(network, part) for part in (parts.train, parts.test)]
    coverings: dict[str, Covering] = {
        "Gaussian mixture": bounds.GaussianMixture(components=given["mixture"][0], rank=given["mixture"][1]),
        "sparse dictionary": bounds.SparseDictionary(atoms=given["sparse"][0], sparsity=given["sparse"][1]),
        "measured": bounds.GreedyCovering(),
    }
    right = margins > 0
    gamma = float(margins[right].min()) if bool(right.any()) else None
    row: Row = {
        "accuracy": accuracies[1],
        "gap": abs(accuracies[0] - accuracies[1]),
        "margin": gamma,
        "right": float(right.double().mean()),
        "log10 (21)": math.log10(frobenius.value),
        "log10 (21), product 1": fixed,
    }
    if gamma is None:
        return row
    points: list[Row] = []
    for name, covering in coverings.items():
        number = covering.log_number(gamma / 2, train.x)
        value = log10_bound(number, parts.classes, given["delta"], len(train))
        points.append({"curve": "coverings", "at": {"covering": name}, "ln N": number, "log10 bound": value})
    mixture = points[0]["ln N"]
    row["log10 (22)"] = mixture / 2 / math.log(10) - math.log10(len(train)) / 2
    return {**row, "points": points}


def log10_bound(log_covering: float, classes: int, delta: float, count: int) -> float:
    """log₁₀ √((2K ln 2 + 2 ln(1/δ))/m) with K = classes·N, where N need not fit into a float (Theorem 1)."""
    first = math.log(2 * classes * math.log(2)) + log_covering
    second = math.log(-2 * math.log(delta))
    summed = float(torch.logaddexp(torch.tensor(first).double(), torch.tensor(second).double()))
    return (summed - math.log(count)) / 2 / math.log(10)
