"""Registry of what is known about each layer type: one file per family of layers, one decorated function per rule.

A rule is registered for layer types under the name of a capability (see `CAPABILITIES`):

    @layers.register("pieces", MyActivation)
    def pieces(module, x):
        return layers.Slopes(negative=0.0, positive=module.scale)

`layers.rule("pieces", module)` returns the rule for a module, or None. Packages register rules that need their own
code when they are imported: `certify` the linear relaxations, `population` the stacked forms.
"""

from widemargin.layers import (  # noqa: F401  # noqa: F401
    activation,
    attention,
    convolution,
    functions,
    linear,
    network,
    normalization,
    pooling,
    structure,
)
from widemargin.layers.forms import Affine, MaxPool, Slopes
from widemargin.layers.registry import CAPABILITIES, form_of, lookup, register, rule, table
from widemargin.layers.trace import read_chain

__all__ = ["CAPABILITIES", "Affine", "MaxPool", "Slopes"]
__all__ += ["form_of", "lookup", "read_chain", "register", "rule", "table"]
