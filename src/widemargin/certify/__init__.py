"""Certified radii: balls around samples in which the predicted class of a network can't change.

Networks of ReLUs, max-pools, residual sums, group and layer norm. Linear relaxation: intervals inside the network
(IBP), and one linear bound of the scores from the output back to the input (CROWN). The radii are certificates for the
real-valued function that the weights define.
"""

from widemargin.certify.radius import Method, margin_bound, radius

__all__ = ["Method", "margin_bound", "radius"]
