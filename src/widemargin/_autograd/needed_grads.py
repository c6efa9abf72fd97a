"""Gradients that autograd needs from a custom function in the current backward pass.

`ctx.needs_input_grad` lists the gradients that any pass may need. The pass for margins and Jacobians needs gradients at
activations only, so computing those of the weights would be wasted.
"""

from __future__ import annotations

from itertools import zip_longest

import torch
from torch import Tensor

from widemargin.types import AutogradContext


def non_leaf(tensor: Tensor) -> Tensor:
    """`tensor`, or a view of it if it is a leaf, for which autograd does not say whether its gradient is needed."""
    return tensor.view_as(tensor) if tensor.requires_grad and tensor.is_leaf else tensor


def needed_grads(ctx: AutogradContext) -> list[bool]:
    """Whether the current pass needs the gradient, for each input of a function.

    The tensors come first among the inputs and are passed through `non_leaf`. A bias of None is no tensor: no tensor
    may follow it.
    """
    nodes = [node for node, _ in ctx.next_functions]  # of the tensors alone
    return [
        needed and node is not None and torch._C._will_engine_execute_node(node)
        for needed, node in zip_longest(ctx.needs_input_grad, nodes)
    ]
