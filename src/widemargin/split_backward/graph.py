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
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from widemargin.layers.nodes import Node, WeightGradient, WeightGradients
from widemargin.split_backward import weight_gradients as shortcuts

_LEAF = "torch::autograd::AccumulateGrad"
_NOTHING = ("AliasBackward0", "torch::autograd::Identity")
_PASSED_ON = ("ToCopyBackward0", "TBackward0", *_NOTHING)

Edges: TypeAlias = tuple[tuple[Node | None, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Use:
    """An active node that parameters enter.

    Args:
        node: the node.
        outputs: which of its outputs the scores depend on.
        enters: which of its inputs lead to parameters.
        leaves: those parameters, and whatever else of the user's requires a gradient.
        is_alone: whether no other use has any of these parameters.
        is_summed: whether two sums over the pixels are kept, and not the gradients that arrive; samples lie along the
            first dimension then.
        is_channels_last: whether it is a convolution that would copy its gradient to put channels last.
    """

    node: Node
    outputs: tuple[int, ...]
    enters: tuple[int, ...]
    leaves: tuple[Tensor, ...]
    is_alone: bool
    is_summed: bool
    is_channels_last: bool

    @property
    def edges(self) -> list[GradientEdge]:
        """Where the gradients arrive."""
        return [GradientEdge(self.node, output) for output in self.outputs]

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the gradients that arrive, known before they do."""
        return [tuple(self.node._input_metadata[output].shape) for output in self.outputs]

    def bytes(self) -> int:
        """The memory of what is kept."""
        if self.is_summed:
            kind = self.node._input_metadata[self.outputs[0]]
            return 2 * math.prod(kind.shape[:2]) * max(4, kind.dtype.itemsize)
        return self._arriving_bytes()

    def work(self) -> int:
        """Multiply-adds of the gradient of its activations, times the bytes of a number: about the time of a GPU."""
        weight = max(self.leaves, key=Tensor.numel)
        each = weight.numel() // len(weight) if weight.ndim > 1 and len(weight) else 1
        return each * self._arriving_bytes()

    def _arriving_bytes(self) -> int:
        kinds = [self.node._input_metadata[output] for output in self.outputs]
        return sum(math.prod(kind.shape) * int(kind.dtype.itemsize) for kind in kinds)

    @property
    def is_hooked(self) -> bool:
        """Whether what is kept is taken by a hook, while the gradient arrives."""
        return self.is_summed or self.is_channels_last

    @contextmanager
    def keeping(self) -> Iterator[list[Tensor]]:
        """What is kept of the gradient that arrives in a backward pass inside the `with` block, if one does."""
        kept: list[Tensor] = []

        def keep(arriving: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
            gradient = arriving[0]
            if gradient is None:
                return None
            if self.is_summed:
                kept.append(shortcuts.gradient_sums(self.node, gradient))
                return None
            kept.append(gradient.contiguous(memory_format=torch.channels_last))  # once, for both passes
            return (kept[0], *arriving[1:])

        handle = self.node.register_prehook(keep)
        try:
            yield kept
        finally:
            handle.remove()  # else node and hook would hold each other for ever

    def hold(self) -> WeightGradient | None:
        """What gives the gradients of the parameters without the node, which may let go of what it saved; or None."""
        return shortcuts.of_gradient(self.node, self.enters)

    @property
    def needs_node(self) -> bool:
        """Whether, where `hold` gives nothing, the node is called once more, and needs what it saved for that."""
        return not self.is_summed and not shortcuts.saves_nothing(self.node)

    def parameter_gradients(
        self,
        kept: Sequence[Tensor | None],
        layouts: Sequence[Spreads],
        factors: Factors,
        held: WeightGradient | None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(parameter, gradient) for every parameter that enters here, where sample k counts so often as `factors` say.

        By what `hold` gave. Without it, nothing is computed for the activations either, unless a parameter has other
        uses: autograd would go on from here to those, so that the node is called by itself, and its gradient for the
        activations thrown away.
        """
        if not any(part is not None for part in kept):
            return
        if held is not None:
            assert kept[0] is not None
            yield from self.passed_on(held(kept[0], factors.of(kept[0], layouts[0])))
            return
        scaled = {
            output: gradient * factors.of(gradient, layout)
            for output, gradient, layout in zip(self.outputs, kept, layouts, strict=True)
            if gradient is not None
        }
        if self.is_alone:
            edges = [GradientEdge(self.node, output) for output in scaled]
            yield from _gradients(edges, list(scaled.values()), self.leaves, retain_graph=False)
            return
        given = [scaled.get(output) for output in range(len(self.node._input_metadata))]
        answer = self.node(*given)
        yield from self.passed_on(answer if isinstance(answer, tuple) else (answer,))

    def passed_on(self, answers: WeightGradients) -> Iterator[tuple[Tensor, Tensor]]:
        """(parameter, gradient), from the gradients of the node's inputs."""
        for number in self.enters:
            if (found := answers[number]) is not None:
                before, output = self.node.next_functions[number]
                yield from _below(before, output, found)


@runtime_checkable
class Spreads(Protocol):
    """Knows how samples lie in a tensor."""

    def factors(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """What multiplies the part of every sample of `gradient` by its weight."""
        ...


class Factors:
    """How often every sample counts, `weights`, as factors of gradients; many layers of a network share a form."""

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self._forms: dict[Any, Tensor] = {}

    def of(self, gradient: Tensor, layout: Spreads) -> Tensor:
        """What multiplies the part of every sample of `gradient` by its weight."""
        form = layout, gradient.shape, gradient.dtype
        if form not in self._forms:
            self._forms[form] = layout.factors(self.weights, gradient)
        return self._forms[form]


@dataclass(frozen=True)
class Layout:
    """How samples lie in a tensor: along `dim`, `each` rows a sample, next to each other or `each` times in turn."""

    dim: int
    each: int
    is_adjacent: bool

    def factors(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """What multiplies the part of sample k of `gradient` by `weights[k]`, in the dtype and the shape for it.

        In half precision the weights are rounded, as they are where autograd takes them from the loss to the scores.
        """
        return self.spread(weights).to(gradient.dtype).view(-1, *[1] * (gradient.ndim - self.dim - 1))

    def spread(self, weights: Tensor) -> Tensor:
        """The weight of every row along `dim`."""
        if self.each == 1:
            return weights
        return weights.repeat_interleave(self.each) if self.is_adjacent else weights.repeat(self.each)

    def fits(self, shape: Sequence[int], like: Sequence[int], samples: int) -> bool:
        """Whether `shape` is `like`, of some other number of samples, with `samples` of them."""
        wanted = list(like)
        wanted[self.dim] = samples * self.each
        return list(shape) == wanted


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """The uses of a forward pass, latest first; and the names of all nodes, by which its form is known again."""

    uses: list[Use]
    names: tuple[str, ...]

    def bytes(self) -> int:
        """The memory of all gradients that arrive at the uses."""
        return sum(use.bytes() for use in self.uses)

    def work(self) -> int:
        """What the split saves: see `Use.work`."""
        return sum(use.work() for use in self.uses)

    def most_used(self) -> tuple[Tensor, int]:
        """The parameter with the most uses, and how many it has."""
        counts = Counter(id(leaf) for use in self.uses for leaf in use.leaves)
        leaves = {id(leaf): leaf for use in self.uses for leaf in use.leaves}
        found, count = counts.most_common(1)[0]
        return leaves[found], count


def graph_of(scores: Tensor, zeros: Sequence[Tensor]) -> Graph:
    """The graph behind `scores`, in which gradients at the places arrive at `zeros`."""
    assert scores.grad_fn is not None
    before = _late_to_early(scores.grad_fn)
    named = tuple(node.name() for node in before)
    places = {id(zero) for zero in zeros}
    active: set[Node] = set()
    for (node, edges), name in zip(reversed(before.items()), reversed(named)):
        if any(other in active for other, _ in edges) or (name == _LEAF and id(_variable(node)) in places):
            active.add(node)
    outputs: dict[Node, set[int]] = {scores.grad_fn: {scores.output_nr}}
    found: list[tuple[Node, tuple[int, ...], tuple[Tensor, ...]]] = []
    for node, edges in before.items():
        if node in active:
            entering = []
            for number, (other, output) in enumerate(edges):
                if other in active:
                    outputs.setdefault(other, set()).add(output)
                elif other is not None:
                    entering.append(number)
            if entering and (leaves := _leaves_below([edges[number][0] for number in entering])):
                found.append((node, tuple(entering), leaves))
    counts = Counter(id(leaf) for _, _, leaves in found for leaf in leaves)
    uses = [
        Use(
            node=node,
            outputs=tuple(sorted(outputs[node])),
            enters=entering,
            leaves=leaves,
            is_alone=all(counts[id(leaf)] == 1 for leaf in leaves),
            is_summed=outputs[node] == {0} and shortcuts.has_sums(node, entering),
            is_channels_last=shortcuts.is_channels_last(node),
        )
        for node, entering, leaves in found
    ]
    # A pass that carries derivatives along (`forward_mode`) has nodes that do nothing in between.
    return Graph(uses=uses, names=tuple(name for name in named if name not in _NOTHING))


def _late_to_early(root: Node) -> dict[Node, Edges]:
    """Every node behind `root`, each one before those that it passes gradients to, with its edges to them."""
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
    variable: Tensor = leaf.variable  # of AccumulateGrad alone
    return variable


def _below(node: Node | None, output: int, gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(parameter, gradient) of what lies below a node that is not active, where `gradient` arrives."""
    if node is None:
        return
    name = node.name()
    kind = _variable(node) if name == _LEAF else node._input_metadata[output]
    if tuple(gradient.shape) != tuple(kind.shape):  # as autograd itself does between nodes
        gradient = gradient.sum_to_size(kind.shape)
    if gradient.dtype != kind.dtype:
        gradient = gradient.to(kind.dtype)
    if name == _LEAF:
        yield _variable(node), gradient
    elif name in _PASSED_ON:  # a weight under autocast, or of a linear layer
        before, number = node.next_functions[0]
        yield from _below(before, number, gradient.t() if name == "TBackward0" else gradient)
    else:
        yield from _gradients([GradientEdge(node, output)], [gradient], _leaves_below([node]), retain_graph=True)


def _gradients(
    edges: Sequence[GradientEdge], arriving: Sequence[Tensor], leaves: Sequence[Tensor], *, retain_graph: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    gradients = torch.autograd.grad(edges, leaves, arriving, retain_graph=retain_graph, allow_unused=True)
    return ((leaf, gradient) for leaf, gradient in zip(leaves, gradients) if gradient is not None)
