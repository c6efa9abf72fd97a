"""Products with the Jacobian of an existing graph.

Vector-Jacobian products of several columns of scores take one batched backward pass, Jacobian-vector products two.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import vmap

from widemargin.types import Node

Edges: TypeAlias = tuple[tuple[Node | None, int], ...]

AT_ONCE = {"cpu": 2**20, "cuda": 2**28}
"""Largest size of the batched gradient at the largest activation, in numbers.

On a CPU a batch that leaves the cache is slower than one column after the other; on a GPU memory is the limit.
"""

_without_rules: set[tuple[frozenset[str], bool]] = set()
"""Sets of node names, and whether with a graph, for which torch was found to lack a batching rule."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchedVjp:
    """Backward passes to `inputs`, `columns` columns at a time, through autograd nodes named `nodes`."""

    inputs: Sequence[Tensor]
    second_order: bool
    columns: int
    nodes: frozenset[str]

    def gradients(self, part: Tensor) -> tuple[Tensor, ...] | None:
        """Gradients of every column of `part` `[batch, columns]` by one pass, `[columns, ...]` each.

        None if the columns must go one by one: torch lacks a batching rule for a node. Where torch falls back to a loop
        over the columns, the result is returned, but the same nodes are not batched again. (A warning filter that
        raises in the middle of a pass would leave the graph in memory.)
        """
        key = self.nodes, self.second_order
        count = part.shape[1]
        if count < 2 or key in _without_rules:
            return None
        cotangents = torch.eye(count, dtype=part.dtype, device=part.device)[:, None].expand(count, *part.shape)

        def vjp(v: Tensor) -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                part, self.inputs, v, retain_graph=True, create_graph=self.second_order, materialize_grads=True
            )

        try:
            with _fallback_warnings() as fallbacks:
                # Not `is_grads_batched`: its older vmap loses the graph of a custom function that backward calls.
                gradients: tuple[Tensor, ...] = vmap(vjp)(cotangents)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError):
                _without_rules.add(key)
            return None
        if fallbacks:
            _without_rules.add(key)
        return gradients


def batched_vjp(outputs: Tensor, inputs: Sequence[Tensor], *, second_order: bool) -> BatchedVjp:
    """The batched backward passes from `outputs` `[batch, k]` to `inputs`, sized by the largest activation."""
    assert outputs.grad_fn is not None
    nodes = active_nodes(nodes_behind(outputs.grad_fn), inputs)  # those of weights alone do not grow with the columns
    largest = max([1, *(math.prod(metadata.shape) for node in nodes for metadata in node._input_metadata)])
    most = AT_ONCE.get(outputs.device.type, AT_ONCE["cpu"]) // largest
    names = frozenset(node.name() for node in nodes)
    columns = max(1, min(outputs.shape[1], most))
    return BatchedVjp(inputs=inputs, second_order=second_order, columns=columns, nodes=names)


def nodes_behind(root: Node) -> dict[Node, Edges]:
    """Every node behind `root` with its edges, each before the nodes that it passes gradients to."""
    finished: list[tuple[Node, Edges]] = []
    seen = {root}
    stack = [(root, edges := root.next_functions, iter(edges))]
    while stack:
        node, edges, rest = stack[-1]
        for before, _ in rest:
            if before is not None and before not in seen:
                seen.add(before)
                after = before.next_functions
                stack.append((before, after, iter(after)))
                break
        else:
            finished.append((node, edges))
            stack.pop()
    return dict(reversed(finished))


def active_nodes(nodes: dict[Node, Edges], leaves: Sequence[Tensor]) -> set[Node]:
    """Those of `nodes`, in the order of `nodes_behind`, that the gradient at one of `leaves` passes."""
    ends = {id(leaf) for leaf in leaves}
    active: set[Node] = set()
    for node, edges in reversed(nodes.items()):
        if any(before in active for before, _ in edges) or id(getattr(node, "variable", None)) in ends:
            active.add(node)
    return active


def jvp(outputs: Tensor, inputs: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """J·u of `outputs` at each of `inputs` along its directions u `[some, ...]`: `[some, *outputs.shape]`.

    Jᵀv is linear in v, so the derivative of Jᵀv·u in v is J·u: one backward pass for Jᵀv at all inputs, and one through
    that pass for each direction, batched where torch has rules for it. The graph is kept.
    """
    if not outputs.requires_grad:
        return [outputs.new_zeros(len(u), *outputs.shape) for u in directions]
    v = torch.zeros_like(outputs, requires_grad=True)
    vjps = torch.autograd.grad(outputs, inputs, v, create_graph=True, allow_unused=True)
    return [_derivative(vjp, v, u) for vjp, u in zip(vjps, directions)]


def _derivative(vjp: Tensor | None, v: Tensor, directions: Tensor) -> Tensor:
    if vjp is None or not vjp.requires_grad:
        return v.new_zeros(len(directions), *v.shape)
    u = directions.reshape(-1, *vjp.shape).to(vjp.dtype)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*performance drop")  # torch would loop over the directions
            return torch.autograd.grad(vjp, v, u, retain_graph=True, is_grads_batched=True, materialize_grads=True)[0]
    except (RuntimeError, UserWarning):
        each = [torch.autograd.grad(vjp, v, one, retain_graph=True, materialize_grads=True)[0] for one in u]
        return torch.stack(each)


@contextmanager
def _fallback_warnings() -> Iterator[list[str]]:
    """Collect torch's warnings about missing batching rules inside the `with` block; other warnings pass."""
    fallbacks: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=".*performance drop")
        yield fallbacks
    for warning in caught:
        if "performance drop" in str(warning.message):
            fallbacks.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
