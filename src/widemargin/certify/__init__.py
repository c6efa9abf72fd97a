"""Certified radii of ReLU networks: balls around samples in which the predicted class can't change.

Linear relaxation: intervals inside the network (IBP), and one linear bound of the scores from the output back to the
input (CROWN). The radii are certificates for the real-valued function that the weights define.
"""

from widemargin.certify.radius import Method, margin_bound, radius

__all__ = ["Method", "margin_bound", "radius"]
