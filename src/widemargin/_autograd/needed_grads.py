"""Which gradients a backward pass asks a function of ours for.

`ctx.needs_input_grad` says which could be asked for. But the pass that gives margins and Jacobians wants gradients at
activations alone, and those of the weights would be computed in vain.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor


def inner(tensor: Tensor) -> Tensor:
    """The tensor itself, but never a leaf, of which autograd does not say whether its gradient is wanted."""
    return tensor.view_as(tensor) if tensor.requires_grad and tensor.is_leaf else tensor


def asked(ctx: Any) -> list[bool]:
    """For each input of a function, whose tensors come first and were given as `inner`: does this pass ask for it?

    A bias that is None is no tensor: after it there may be none.
    """
    nodes = [node for node, _ in ctx.next_functions]  # of the tensors alone
    return [
        needed and node is not None and torch._C._will_engine_execute_node(node)
        for needed, node in zip_longest(ctx.needs_input_grad, nodes)
    ]
