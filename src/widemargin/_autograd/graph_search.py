"""Search of the graph of autograd for tensors that another one was computed from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from torch import Tensor


def is_computed_from(output: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether the graph of `output` has one of `tensors` in it; True where `output` has no graph."""
    if output.grad_fn is None:
        return True
    ends = {tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None}
    leaves = {id(tensor) for tensor in tensors if tensor.grad_fn is None}
    nodes, seen = deque([output.grad_fn]), {output.grad_fn}
    while nodes:  # the nearest nodes first: scores that were cast are one step away from themselves
        node = nodes.popleft()
        if node in ends or id(getattr(node, "variable", None)) in leaves:
            return True
        new = {inner for inner, _ in node.next_functions if inner is not None} - seen
        nodes.extend(new)
        seen |= new
    return False
