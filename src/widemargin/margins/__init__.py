"""Measured margins: at the output, as a distance at any place in any l_p, normalized, and as a distribution."""

from widemargin.margins import normalized
from widemargin.margins.distance import distance, linearize, valid
from widemargin.margins.distribution import Distribution, by_class
from widemargin.margins.estimation import estimate
from widemargin.margins.measurement import Measurement, measure
from widemargin.margins.output import differences, output
from widemargin.probabilities import from_probabilities

__all__ = [
    "Distribution",
    "Measurement",
    "by_class",
    "differences",
    "distance",
    "estimate",
    "from_probabilities",
    "linearize",
    "measure",
    "normalized",
    "output",
    "valid",
]
