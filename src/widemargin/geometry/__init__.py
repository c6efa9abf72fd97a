"""ReLU networks as piecewise affine maps: exact patterns, regions, lines and plane slices."""

from widemargin.geometry.jacobian_margin import jacobian_margin
from widemargin.geometry.lines import Line, NormChain, average_jacobian, line, norm_chain
from widemargin.geometry.margin import exact_margin
from widemargin.geometry.network import AffineMap, affine, jacobian, pattern
from widemargin.geometry.plain import outlines, plain
from widemargin.geometry.sets import Curves, Sets, curves, sets
from widemargin.geometry.slices import Boundary, Decisions, Ellipses, Raster, Slice, slice2d

__all__ = ["AffineMap", "Boundary", "Curves", "Decisions", "Ellipses", "Line", "NormChain", "Raster", "Sets", "Slice"]
__all__ += ["affine", "average_jacobian", "curves", "exact_margin", "jacobian", "jacobian_margin", "line", "norm_chain"]
__all__ += ["outlines", "pattern", "plain", "sets", "slice2d"]
