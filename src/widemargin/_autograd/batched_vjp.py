"""Several columns of scores go back through a graph by one pass over a batch of cotangents."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

AT_ONCE = {"cpu": 2**20, "cuda": 2**28}
"""Numbers that the gradient at the largest activation may have when columns go back together.

On a CPU one that leaves the cache makes it slower than one column after the other; on a GPU it is memory that counts.
"""

_without_rules: set[tuple[frozenset[str], bool]] = set()
"""Kinds of nodes, and whether with a graph, for some of which torch was seen to have no rule for such a batch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Way:
    """A way back to `inputs`: how many columns to take at once, and the names of the nodes of autograd on it."""

    inputs: Sequence[Tensor]
    second_order: bool
    some: int
    kinds: frozenset[str]

    def gradients(self, part: Tensor) -> tuple[Tensor, ...] | None:
        """Those of every column of `part` `[batch, some]` by one pass, `[some, ...]` each; or None: one by one.

        Where torch has no rule for a single operation it loops over the columns there. That is slow, and so not done
        again; but it is no error: one that a warning becomes in the middle of a pass leaves the graph in memory.
        """
        if part.shape[1] < 2 or self._key in _without_rules:
            return None
        count = part.shape[1]
        each = torch.eye(count, dtype=part.dtype, device=part.device)[:, None].expand(count, *part.shape)

        def back(v: Tensor) -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                part, self.inputs, v, retain_graph=True, create_graph=self.second_order, materialize_grads=True
            )

        try:
            with _loops() as seen:
                # Not `is_grads_batched`: its older vmap loses the graph of a custom function that backward calls.
                found: tuple[Tensor, ...] = vmap(back)(each)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError):
                _without_rules.add(self._key)
            return None
        if seen:
            _without_rules.add(self._key)
        return found

    @property
    def _key(self) -> tuple[frozenset[str], bool]:
        return self.kinds, self.second_order


def way(outputs: Tensor, inputs: Sequence[Tensor], *, second_order: bool) -> Way:
    """The way back from `outputs` `[batch, k]` to `inputs`.

    As many columns go together as keep the gradient at the largest activation small.
    """
    ends = {id(one) for one in inputs}
    largest, kinds = 1, set[str]()
    leads: dict[Any, bool] = {None: False}  # whether a gradient at an input runs through a node
    stack: list[Any] = [outputs.grad_fn]
    while stack:
        node = stack[-1]
        if node in leads:
            stack.pop()
            continue
        before = [parent for parent, _ in node.next_functions]
        if ahead := [parent for parent in before if parent not in leads]:
            stack += ahead
            continue
        leads[node] = any(leads[parent] for parent in before) or id(getattr(node, "variable", None)) in ends
        if leads[node]:  # a weight, and what is made of it, is as large however many columns there are
            largest = max(largest, *(math.prod(kind.shape) for kind in node._input_metadata))
            kinds.add(node.name())
    most = AT_ONCE.get(outputs.device.type, AT_ONCE["cpu"]) // largest
    return Way(
        inputs=inputs,
        second_order=second_order,
        some=max(1, min(outputs.shape[1], most)),
        kinds=frozenset(kinds),
    )


@contextmanager
def _loops() -> Iterator[list[str]]:
    """What torch says inside the `with` block of operations for which it loops; other warnings are given as ever."""
    seen: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.filterwarnings("always", message=".*performance drop")
        yield seen
    for one in said:
        if "performance drop" in str(one.message):
            seen.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
