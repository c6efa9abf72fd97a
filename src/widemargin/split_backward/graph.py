"""The autograd graph of a forward pass: the activations on the paths to the places, and the parameters that enter them.

A node of autograd is *active* if a gradient at a place passes through it. A *use* is an active node that parameters
enter (a convolution, a matrix product, the affine part of a norm, an added position), directly or through inactive
nodes (a transpose, a cast, weight normalisation, or all of the network before the first place). The gradient of a
parameter depends only on the gradients that arrive at its uses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from widemargin import layers
from widemargin._autograd.jacobian_products import Edges, active_nodes, nodes_behind
from widemargin.layers.convolution import has_channels_last
from widemargin.layers.registry import WeightGradient, WeightGradients
from widemargin.types import Node

LEAF = "torch::autograd::AccumulateGrad"
_IDENTITY = ("AliasBackward0", "torch::autograd::Identity")
_TRANSPARENT = ("ToCopyBackward0", "TBackward0", *_IDENTITY)
_SAVES_NOTHING = ("AddBackward0", "SubBackward0", "CatBackward0")
_WEIGHT_GRADIENTS, _SUMS = layers.lookup("weight_gradient"), layers.lookup("gradient_sums")

ParameterGradients: TypeAlias = Iterator[tuple[Tensor, Tensor]]
"""Pairs (parameter, gradient)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ParameterUse:
    """An active node that parameters enter.

    Args:
        node: the node.
        outputs: those of its outputs that the scores depend on.
        parameter_inputs: those of its inputs that lead to parameters.
        leaves: these parameters, and any other tensor of the user that requires a gradient.
        is_exclusive: whether no other use has any of these parameters.
        keeps_sums: whether two sums over the pixels are kept instead of the arriving gradients, whose first dimension
            then is that of the samples.
        is_channels_last: whether it is a convolution of images with channels last, which would copy its gradient. Where
            only the kernel has channels last, the pass for the activations needs the gradient as it comes (torch lays
            it out as the input, and then as the kernel), and `weight_gradient` copies it for the other one.
    """

    node: Node
    outputs: tuple[int, ...]
    parameter_inputs: tuple[int, ...]
    leaves: tuple[Tensor, ...]
    is_exclusive: bool
    keeps_sums: bool
    is_channels_last: bool

    @property
    def edges(self) -> list[GradientEdge]:
        """The edges at which gradients arrive."""
        return [GradientEdge(self.node, output) for output in self.outputs]

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the gradients that will arrive."""
        return [tuple(self.node._input_metadata[output].shape) for output in self.outputs]

    def kept_bytes(self) -> int:
        """The memory of the kept tensors."""
        if not self.keeps_sums:
            return self._arriving_bytes()
        arriving = self.node._input_metadata[self.outputs[0]]
        return 2 * math.prod(arriving.shape[:2]) * max(4, arriving.dtype.itemsize)

    def work(self) -> int:
        """Multiply-adds of the gradient of its activations, times the bytes of a number: about the time of a GPU."""
        weight = max(self.leaves, key=Tensor.numel)
        each = weight.numel() // len(weight) if weight.ndim > 1 and len(weight) else 1
        return each * self._arriving_bytes()

    def _arriving_bytes(self) -> int:
        arriving = [self.node._input_metadata[output] for output in self.outputs]
        return sum(math.prod(one.shape) * int(one.dtype.itemsize) for one in arriving)

    @property
    def is_hooked(self) -> bool:
        """Whether a hook takes what is kept, when the gradient arrives."""
        return self.keeps_sums or self.is_channels_last

    @contextmanager
    def hook(self) -> Iterator[list[Tensor]]:
        """A list that a backward pass inside the `with` block fills with what is kept, if a gradient arrives."""
        kept: list[Tensor] = []

        def keep(arriving: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
            gradient = arriving[0]
            if gradient is None:
                return None
            if self.keeps_sums:
                kept.append(_SUMS[self.node.name()](self.node, gradient))
                return None
            kept.append(gradient.contiguous(memory_format=torch.channels_last))  # once, for both passes
            return (kept[0], *arriving[1:])

        handle = self.node.register_prehook(keep)
        try:
            yield kept
        finally:
            handle.remove()  # else node and hook would keep each other alive

    def weight_gradient(self) -> WeightGradient | None:
        """A function for the gradients of the parameters by the operations that autograd itself calls; or None.

        The engine of autograd takes longer to start than a convolution takes on a fast GPU. The function holds the
        saved tensors that it needs, and the first pass may free the others: a network of layers with such rules frees
        as much memory as the stored gradients take.
        """
        rule = None if self.keeps_sums else _WEIGHT_GRADIENTS.get(self.node.name())
        return None if rule is None else rule(self.node, self.parameter_inputs)

    @property
    def needs_node(self) -> bool:
        """Whether, without such a function, the node is called again and needs its saved tensors."""
        return not self.keeps_sums and self.node.name() not in _SAVES_NOTHING

    def parameter_gradients(
        self, kept: Sequence[Tensor | None], factors: Sequence[Tensor | None], function: WeightGradient | None
    ) -> ParameterGradients:
        """(parameter, gradient) for every parameter that enters here, given arriving gradients and their `factors`.

        By `function` if there is one, else by autograd. A parameter with other uses would make autograd go on to those:
        then the node is called by itself, and its gradient for the activations is discarded.
        """
        if not any(gradient is not None for gradient in kept):
            return
        if function is not None:
            assert kept[0] is not None
            assert factors[0] is not None
            yield from self.to_parameters(function(kept[0], factors[0]))
            return
        scaled = {
            output: gradient * factor
            for output, gradient, factor in zip(self.outputs, kept, factors, strict=True)
            if gradient is not None and factor is not None
        }
        if self.is_exclusive:
            edges = [GradientEdge(self.node, output) for output in scaled]
            yield from _gradients(edges, list(scaled.values()), self.leaves, retain_graph=False)
            return
        answer = self.node(*(scaled.get(output) for output in range(len(self.node._input_metadata))))
        yield from self.to_parameters(answer if isinstance(answer, tuple) else (answer,))

    def to_parameters(self, gradients: WeightGradients) -> ParameterGradients:
        """(parameter, gradient), given the gradients of the node's inputs."""
        for number in self.parameter_inputs:
            if (gradient := gradients[number]) is not None:
                before, output = self.node.next_functions[number]
                yield from _below(before, output, gradient)


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardGraph:
    """The uses of a forward pass, latest first, and the names of all nodes, which identify its form."""

    uses: list[ParameterUse]
    names: tuple[str, ...]

    def kept_bytes(self) -> int:
        """The memory of all kept tensors."""
        return sum(use.kept_bytes() for use in self.uses)

    def work(self) -> int:
        """The work that the split saves, see `ParameterUse.work`."""
        return sum(use.work() for use in self.uses)

    def most_used(self) -> tuple[Tensor, int]:
        """The parameter with the most uses, and their number."""
        leaves = [leaf for use in self.uses for leaf in use.leaves]
        most, count = Counter(map(id, leaves)).most_common(1)[0]
        return next(leaf for leaf in leaves if id(leaf) == most), count


def graph_of(scores: Tensor, zeros: Sequence[Tensor]) -> ForwardGraph:
    """The graph behind `scores`, in which gradients at the places arrive at `zeros`."""
    assert scores.grad_fn is not None
    nodes: dict[Node, Edges] = nodes_behind(scores.grad_fn)
    active = active_nodes(nodes, zeros)
    outputs: dict[Node, set[int]] = {scores.grad_fn: {scores.output_nr}}
    entered: list[tuple[Node, tuple[int, ...], tuple[Tensor, ...]]] = []
    for node, edges in nodes.items():
        if node in active:
            inputs = []
            for number, (other, output) in enumerate(edges):
                if other in active:
                    outputs.setdefault(other, set()).add(output)
                elif other is not None:
                    inputs.append(number)
            if inputs and (leaves := _leaves_below([edges[number][0] for number in inputs])):
                entered.append((node, tuple(inputs), leaves))
    counts = Counter(id(leaf) for _, _, leaves in entered for leaf in leaves)
    uses = [
        ParameterUse(
            node=node,
            outputs=tuple(sorted(outputs[node])),
            parameter_inputs=inputs,
            leaves=leaves,
            is_exclusive=all(counts[id(leaf)] == 1 for leaf in leaves),
            keeps_sums=outputs[node] == {0} and 0 not in inputs and _has_sums(node),
            is_channels_last=node.name() == "ConvolutionBackward0" and has_channels_last(node._saved_input),
        )
        for node, inputs, leaves in entered
    ]
    # A pass in forward mode (`forward_mode`) has identity nodes in between.
    names = (node.name() for node in nodes)
    return ForwardGraph(uses=uses, names=tuple(name for name in names if name not in _IDENTITY))


def _has_sums(node: Node) -> bool:
    """Whether the gradients of the parameters follow from per-sample sums, see `layers.normalization`."""
    return node.name() in _SUMS and len(node._input_metadata[0].shape) > 2


def _leaves_below(nodes: Sequence[Node | None]) -> tuple[Tensor, ...]:
    """The leaves that gradients at these inactive nodes reach."""
    below = (inner for node in reversed(nodes) if node is not None for inner in nodes_behind(node))
    leaves = [_variable(node) for node in below if node.name() == LEAF]
    return tuple({id(leaf): leaf for leaf in leaves}.values())


def _variable(leaf: Node) -> Tensor:
    variable: Tensor = leaf.variable  # of AccumulateGrad alone
    return variable


def _below(node: Node | None, output: int, gradient: Tensor) -> ParameterGradients:
    """(parameter, gradient) below an inactive node at which `gradient` arrives."""
    if node is None:
        return
    name = node.name()
    like = _variable(node) if name == LEAF else node._input_metadata[output]
    if tuple(gradient.shape) != tuple(like.shape):  # as autograd does between nodes
        gradient = gradient.sum_to_size(like.shape)
    if gradient.dtype != like.dtype:
        gradient = gradient.to(like.dtype)
    if name == LEAF:
        yield _variable(node), gradient
    elif name in _TRANSPARENT:  # a weight under autocast, or of a linear layer
        before, number = node.next_functions[0]
        yield from _below(before, number, gradient.t() if name == "TBackward0" else gradient)
    else:
        yield from _gradients([GradientEdge(node, output)], [gradient], _leaves_below([node]), retain_graph=True)


def _gradients(
    edges: Sequence[GradientEdge], arriving: Sequence[Tensor], leaves: Sequence[Tensor], *, retain_graph: bool
) -> ParameterGradients:
    gradients = torch.autograd.grad(edges, leaves, arriving, retain_graph=retain_graph, allow_unused=True)
    return ((leaf, gradient) for leaf, gradient in zip(leaves, gradients) if gradient is not None)
