"""ReLU networks as the piecewise affine maps they are: patterns, regions, lines and plane slices, exactly."""

from widemargin.geometry.chain import NormChain, norm_chain
from widemargin.geometry.lines import Line, average_jacobian, line
from widemargin.geometry.network import register
from widemargin.geometry.regions import AffineMap, affine, jacobian, pattern

__all__ = [
    "AffineMap",
    "Line",
    "NormChain",
    "affine",
    "average_jacobian",
    "jacobian",
    "line",
    "norm_chain",
    "pattern",
    "register",
]
