"""Generalization bounds and certified input margins, one theorem per file.

Each result holds its value, every term of it, and the assumptions of the theorem with what the data say about them.
Unknown constants are taken as 1. A `Certificate` is proved for every sample, a `MarginEstimate` is not.
"""

from widemargin.bounds.covering import Covering, GaussianMixture, GreedyCovering, SparseDictionary
from widemargin.bounds.cushions import Cushions, cushions
from widemargin.bounds.input_margin import InputMargin, input_margin
from widemargin.bounds.neyshabur import NeyshaburBound, neyshabur
from widemargin.bounds.odn import OdnBound, odn
from widemargin.bounds.result import Assumption, Bound, Certificate, MarginEstimate
from widemargin.bounds.robustness import Growth, RobustnessBound, growth, robustness
from widemargin.bounds.spectral import SpectralBound, spectral

__all__ = ["Assumption", "Bound", "Certificate", "Covering", "Cushions", "GaussianMixture", "GreedyCovering", "Growth"]
__all__ += ["InputMargin", "MarginEstimate", "NeyshaburBound", "OdnBound", "RobustnessBound"]
__all__ += ["SparseDictionary", "SpectralBound"]
__all__ += ["cushions", "growth", "input_margin", "neyshabur", "odn", "robustness", "spectral"]
