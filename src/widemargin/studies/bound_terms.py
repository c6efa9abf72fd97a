"""Odn's bound and each of its terms on a trained network, beside Bartlett's (odn, Theorem 1 and its remark)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from widemargin import bounds, margins
from widemargin.data import Samples
from widemargin.studies.rows import Row


def measured(
    network: nn.Module, samples: Samples, *, r: float, thetas: Sequence[float], probes: int | None, seed: int
) -> Row:
    """Values of both bounds at the first of `thetas`, their terms, and points of two curves.

    "theta": the factor ((r+θ)/(r−θ))² and the value at every θ. "layers": stable rank, cushions, and the (2,1) norm of
    every layer. Bartlett's γ is the median output margin of the samples that are right. Biases are left out of both.
    """
    results = [
        bounds.odn(network, samples.x, samples.y, r=r, theta=theta, probes=probes, seed=seed, biases="ignore")
        for theta in thetas
    ]
    first = results[0]
    output = margins.measure(network, samples, progress=False).output
    right = output[output > 0]
    gamma = float(right.median()) if len(right) else 1.0
    other = bounds.spectral(network, samples.x, samples.y, margin=gamma, reference="identity", biases="ignore")
    points: list[Row] = [
        {"curve": "theta", "at": {"theta/r": bound.theta / r}, "factor": bound.ratio, "complexity": bound.complexity}
        for bound in results
    ]
    for mine, theirs in zip(first.layers, other.layers, strict=True):
        values = {
            "stable rank": mine.stable_rank,
            "cushion": mine.cushion,
            "minimal cushion": mine.minimal_cushion,
            "share": mine.share,
            "spectral norm": theirs.spectral,
            "(2,1) norm": theirs.deviation,
        }
        points.append({"curve": "layers", "at": {"layer": mine.name}, **values})
    return {
        "odn bound": first.value,
        "odn loss": first.empirical_loss,
        "odn complexity": first.complexity,
        "contraction": first.cushions.contraction,
        "share within": first.share_within,
        "bartlett bound": other.value,
        "bartlett ramp loss": other.ramp_loss,
        "bartlett complexity": other.complexity,
        "product of spectral norms": other.product,
        "output margin": gamma,
        "points": points,
    }
