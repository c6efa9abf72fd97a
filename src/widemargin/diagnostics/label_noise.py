"""A noise model of labels: which labels are given for which classes, and the posterior of the class of each sample.

P(class k | x, label j) ∝ P(label j | class k) · P(class k | x). The first factor, the transition matrix, is estimated
from samples that are predicted confidently (Northcutt, Jiang, Chuang, *Confident Learning*, JAIR 2021, §3.1). The
second is the prediction of the network for x, which was trained on the given labels, with that matrix taken out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from scipy.optimize import minimize_scalar
from torch import Tensor

ITERATIONS = 10
"""Of the inversion of the transition matrix, which amplifies noise if it goes on."""

PSEUDOCOUNT = 0.5
"""Samples of each class whose label is drawn at random, so that no transition is impossible."""

_SMALLEST = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseModel:
    """`transition` P(label | class) with a row per class; `calibrated` P(label | x) and `clean` P(class | x).

    `temperature` divides the logarithms of the predicted probabilities, so that they are calibrated on the labels.
    """

    calibrated: Float64[Tensor, "samples classes"]
    clean: Float64[Tensor, "samples classes"]
    transition: Float64[Tensor, "classes classes"]
    temperature: float

    @property
    def reliability(self) -> float:
        """The mean probability of the most likely label, which is how often a calibrated prediction is the label."""
        return float(self.calibrated.amax(dim=1).mean())

    def posterior(self, labels: Int64[Tensor, " samples"]) -> Float64[Tensor, "samples classes"]:
        """P(class | x, label) of every sample, if these are the labels."""
        weights = self.transition.T[labels] * self.clean
        return weights / weights.sum(dim=1, keepdim=True)


def noise_model(predicted: Float64[Tensor, "samples classes"], labels: Int64[Tensor, " samples"]) -> NoiseModel:
    """The noise model of `labels`, given `predicted` probabilities P(label | x) that were not fitted to them."""
    logs = predicted.clamp_min(_SMALLEST).log()
    temperature = fitted_temperature(logs, labels)
    calibrated = (logs / temperature).softmax(dim=1)
    transition = transition_matrix(calibrated, labels)
    clean = without_noise(calibrated, transition)
    return NoiseModel(calibrated=calibrated, clean=clean, transition=transition, temperature=temperature)


def fitted_temperature(logs: Float64[Tensor, "samples classes"], labels: Int64[Tensor, " samples"]) -> float:
    """The t with the smallest cross-entropy of softmax(logs/t) (Guo et al. 2017), in [e⁻³, e⁵]."""

    def cross_entropy(log_t: float) -> float:
        scaled = (logs / torch.tensor(log_t, dtype=torch.float64).exp()).log_softmax(dim=1)
        return -float(scaled.gather(1, labels[:, None]).mean())

    found = minimize_scalar(cross_entropy, bounds=(-3.0, 5.0), method="bounded")
    return float(torch.tensor(float(found.x), dtype=torch.float64).exp())


def transition_matrix(
    predicted: Float64[Tensor, "samples classes"], labels: Int64[Tensor, " samples"]
) -> Float64[Tensor, "classes classes"]:
    """P(label j | class k), row k, column j, from the samples that are predicted confidently.

    A sample counts for class k if P(k | x) is at least the mean of P(k | x) over the samples with label k, and for the
    most likely such class. Counts are scaled to the number of samples of each label.
    """
    classes = predicted.shape[1]
    given = torch.bincount(labels, minlength=classes).double()
    sums = torch.zeros(classes, dtype=torch.float64)
    sums.index_add_(0, labels, predicted.gather(1, labels[:, None]).squeeze(1))
    needed = torch.where(given > 0, sums / given.clamp_min(1), torch.inf)  # a label that is never given: no class
    confident = predicted >= needed
    chosen = predicted.where(confident, -1.0).argmax(dim=1)
    counted = confident.any(dim=1)
    joint = torch.zeros(classes, classes, dtype=torch.float64)  # a row per label
    joint.index_put_((labels[counted], chosen[counted]), torch.ones((), dtype=torch.float64), accumulate=True)
    joint.diagonal().clamp_(min=1.0)
    joint *= (given / joint.sum(dim=1))[:, None]
    by_class = joint.sum(dim=0)
    rows = torch.where(by_class[:, None] > 0, joint.T / by_class.clamp_min(_SMALLEST)[:, None], torch.eye(classes))
    size = len(labels) / classes
    return (rows * size + PSEUDOCOUNT / classes) / (size + PSEUDOCOUNT)


def without_noise(
    predicted: Float64[Tensor, "samples classes"], transition: Float64[Tensor, "classes classes"]
) -> Float64[Tensor, "samples classes"]:
    """P(class | x) from P(label | x) = Σ_k P(label | k) P(k | x), by Richardson and Lucy's iteration.

    It stays a distribution, which the inverse of the matrix does not, and increases the likelihood in every step.
    """
    clean = predicted
    for _ in range(ITERATIONS):
        clean = clean * ((predicted / (clean @ transition).clamp_min(_SMALLEST)) @ transition.T)
        clean = clean / clean.sum(dim=1, keepdim=True)
    return clean
