"""The graph of a forward pass, seen as activations on their way to the places, and parameters that enter them.

A node of autograd is *active* if a gradient at a place runs through it. A *use* is an active node that parameters enter
(a convolution, a matrix product, the affine part of a norm, an added position), directly or through nodes that are not
active (a transpose, a cast, weight normalisation, or all of the network before the first place). Every gradient of a
parameter comes from the gradients that arrive at the uses, and from nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, kw_only=True, eq=False)
class Use:
    """An active node that parameters enter.

    Args:
        node: the node.
        outputs: which of its outputs the scores depend on.
        enters: which of its inputs lead to parameters.
        leaves: those parameters, and whatever else of the user's requires a gradient.
        is_alone: whether no other use has any of these parameters.
    """

    node: Node
    outputs: tuple[int, ...]
    enters: tuple[int, ...]
    leaves: tuple[Tensor, ...]
    is_alone: bool

    @property
    def edges(self) -> list[GradientEdge]:
        """Where the gradients arrive."""
        return [GradientEdge(self.node, output) for output in self.outputs]

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the gradients that arrive, known before they do."""
        return [tuple(self.node._input_metadata[output].shape) for output in self.outputs]

    def bytes(self) -> int:
        """The memory of the gradients that arrive."""
        kinds = [self.node._input_metadata[output] for output in self.outputs]
        return sum(math.prod(kind.shape) * kind.dtype.itemsize for kind in kinds)

    def parameter_gradients(self, arriving: Sequence[Tensor | None]) -> Iterator[tuple[Tensor, Tensor]]:
        """(parameter, gradient) for every parameter that enters here, given the gradients that arrive.

        Nothing is computed for the activations, unless a parameter has other uses: autograd would go on from here to
        those, so that the node is called by itself, and its gradient for the activations thrown away.
        """
        given = [(edge, gradient) for edge, gradient in zip(self.edges, arriving) if gradient is not None]
        if not given:
            return
        if self.is_alone:
            edges, gradients = zip(*given)
            yield from _gradients(edges, gradients, self.leaves, retain_graph=False)
            return
        every: list[Tensor | None] = [None] * len(self.node._input_metadata)
        for edge, gradient in given:
            every[edge.output_nr] = gradient
        answer = self.node(*every)  # type: ignore[operator]  # nodes can be called, though their type does not say so
        answers = answer if isinstance(answer, tuple) else (answer,)
        for number in self.enters:
            node, output = self.node.next_functions[number]
            gradient = answers[number]
            if node is None or gradient is None:
                continue
            kind = node._input_metadata[output]  # autograd itself would sum over broadcast dimensions, and cast
            gradient = gradient.sum_to_size(kind.shape).to(kind.dtype)
            if node.name() == _LEAF:
                yield _variable(node), gradient
            else:
                edge = GradientEdge(node, output)
                yield from _gradients([edge], [gradient], _leaves_below([node]), retain_graph=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """The uses of a forward pass, latest first; and the names of all nodes, by which its form is known again."""

    uses: list[Use]
    names: tuple[str, ...]

    def bytes(self) -> int:
        """The memory of all gradients that arrive at the uses."""
        return sum(use.bytes() for use in self.uses)

    def most_used(self) -> tuple[Tensor, int]:
        """The parameter with the most uses, and how many it has."""
        counts = Counter(id(leaf) for use in self.uses for leaf in use.leaves)
        leaves = {id(leaf): leaf for use in self.uses for leaf in use.leaves}
        found, count = counts.most_common(1)[0]
        return leaves[found], count


def graph_of(scores: Tensor, zeros: Sequence[Tensor]) -> Graph:
    """The graph behind `scores`, in which gradients at the places arrive at `zeros`."""
    assert scores.grad_fn is not None
    order = _late_to_early(scores.grad_fn)
    places = {id(zero) for zero in zeros}
    active: set[Node] = set()
    for node in reversed(order):
        if node.name() == _LEAF:
            if id(_variable(node)) in places:
                active.add(node)
        elif any(before in active for before, _ in node.next_functions):
            active.add(node)
    outputs: dict[Node, set[int]] = {scores.grad_fn: {scores.output_nr}}
    entering: dict[Node, tuple[int, ...]] = {}
    for node in order:
        if node in active:
            numbers = []
            for number, (before, output) in enumerate(node.next_functions):
                if before in active:
                    outputs.setdefault(before, set()).add(output)
                elif before is not None:
                    numbers.append(number)
            entering[node] = tuple(numbers)
    leaves = {
        node: found
        for node, numbers in entering.items()
        if (found := _leaves_below([node.next_functions[number][0] for number in numbers]))
    }
    counts = Counter(id(leaf) for found in leaves.values() for leaf in found)
    uses = [
        Use(
            node=node,
            outputs=tuple(sorted(outputs[node])),
            enters=entering[node],
            leaves=found,
            is_alone=all(counts[id(leaf)] == 1 for leaf in found),
        )
        for node, found in leaves.items()
    ]
    return Graph(uses=uses, names=tuple(node.name() for node in order))


def _late_to_early(root: Node) -> list[Node]:
    """Every node behind `root`, each one before those that it passes gradients to."""
    finished: list[Node] = []
    seen = {root}
    stack = [(root, iter(root.next_functions))]
    while stack:
        node, rest = stack[-1]
        for before, _ in rest:
            if before is not None and before not in seen:
                seen.add(before)
                stack.append((before, iter(before.next_functions)))
                break
        else:
            finished.append(node)
            stack.pop()
    return finished[::-1]


def _leaves_below(nodes: Sequence[Node | None]) -> tuple[Tensor, ...]:
    """The leaves that gradients at these nodes, none of them active, come to."""
    found: dict[int, Tensor] = {}
    stack = list(dict.fromkeys(node for node in nodes if node is not None))
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.name() == _LEAF:
            found[id(_variable(node))] = _variable(node)
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                stack.append(before)
    return tuple(found.values())


def _variable(leaf: Node) -> Tensor:
    variable: Tensor = leaf.variable  # type: ignore[attr-defined]  # of AccumulateGrad alone
    return variable


def _gradients(
    edges: Sequence[GradientEdge], arriving: Sequence[Tensor], leaves: Sequence[Tensor], *, retain_graph: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    gradients = torch.autograd.grad(edges, leaves, arriving, retain_graph=retain_graph, allow_unused=True)
    return ((leaf, gradient) for leaf, gradient in zip(leaves, gradients) if gradient is not None)
