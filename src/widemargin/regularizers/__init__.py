"""Regularizers of Jacobians and weights, added to a loss on data.

Every regularizer is a frozen value, called as `regularizer(model, x, y)`. Those of Jacobians return one number per
sample, those of weights a single number. Both include their weight λ: an objective is the mean of the losses plus the
mean of each regularizer.
"""

from widemargin.regularizers.jacobian import Jacobian, JacobianFrobenius
from widemargin.regularizers.weights import ClassifierPenalty, WeightDecay

__all__ = ["ClassifierPenalty", "Jacobian", "JacobianFrobenius", "WeightDecay"]
