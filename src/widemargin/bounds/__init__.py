"""BOUNDED: what a margin promises. One theorem a file; each returns its value and every term of it.

Values with an unknown constant are given with constant 1, and say so. Every result carries the assumptions of its
theorem and what the data say of them. `Certificate` is proved of every sample, `MarginEstimate` is not.
"""

from widemargin.bounds.certificate import Certificate, MarginEstimate
from widemargin.bounds.covering import Covering, GaussianMixture, GreedyCovering, SparseDictionary
from widemargin.bounds.cushions import Cushions, cushions
from widemargin.bounds.input_margin import InputMargin, input_margin
from widemargin.bounds.neyshabur import NeyshaburBound, neyshabur
from widemargin.bounds.odn import OdnBound, odn
from widemargin.bounds.result import Assumption, Bound
from widemargin.bounds.robustness import Growth, RobustnessBound, growth, robustness
from widemargin.bounds.spectral import SpectralBound, spectral

__all__ = [
    "Assumption",
    "Bound",
    "Certificate",
    "Covering",
    "Cushions",
    "GaussianMixture",
    "GreedyCovering",
    "Growth",
    "InputMargin",
    "MarginEstimate",
    "NeyshaburBound",
    "OdnBound",
    "RobustnessBound",
    "SparseDictionary",
    "SpectralBound",
    "cushions",
    "growth",
    "input_margin",
    "neyshabur",
    "odn",
    "robustness",
    "spectral",
]
