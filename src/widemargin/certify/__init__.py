"""CERTIFIED: how far a sample can move, in any direction, before a ReLU network may change its answer.

Linear relaxation: intervals inside the network (IBP), and one linear bound of the scores from the output back to the
input (CROWN). The radii are certificates, of the network as the function of real numbers that its weights define.
"""

from widemargin.certify.radius import Method, margin_bound, radius

__all__ = ["Method", "margin_bound", "radius"]
