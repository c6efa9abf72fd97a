"""The gradients of the parameters of stacked layers without autograd, as `training.backward_shortcuts` for one network.

What `vmap` and `linear` make of layers: batches of matrix products, and biases and the weights of norms as tensors of
their own, which are added or multiplied.
"""

from __future__ import annotations

from torch import Tensor

from widemargin.split_backward import weight_gradients as shortcuts
from widemargin.split_backward.weight_gradients import Answers, Node, OfGradient


def of_gradient(node: Node, enters: tuple[int, ...]) -> OfGradient | None:
    """What gives the answers of `node` that `enters` names; `backward_shortcuts.of_gradient` is asked first."""
    if (known := shortcuts.of_gradient(node, enters)) is not None:
        return known
    name = node.name()
    if name == "_ConvolveBackward" and 0 not in enters:
        return _fused(node, enters)
    if name == "BmmBackward0":
        return _bmm(node, enters)
    if name == "BaddbmmBackward0" and node._saved_alpha == 1 and node._saved_beta == 1:
        return _baddbmm(node, enters)
    if len(enters) == 1 and (name == "MulBackward0" or (name == "AddBackward0" and node._saved_alpha == 1)):
        return _broadcast(node, enters[0])
    return None


def _fused(node: Node, enters: tuple[int, ...]) -> OfGradient | None:
    """Of a convolution by `kernels`: images `[networks, batch, height, width, channels]`, weights, a bias."""
    from widemargin.population import conv_kernels

    if not conv_kernels.is_convolution(node):
        return None
    x, padding = node.saved_tensors[0], node.padding

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        scaled = gradient * factors
        weight = conv_kernels.weight_gradient(x, scaled, padding) if 1 in enters else None
        return None, weight, scaled.sum(dim=(1, 2, 3)) if 2 in enters else None

    return answers


def _bmm(node: Node, enters: tuple[int, ...]) -> OfGradient:
    """Of a batch of matrix products, as linear layers of stacked networks are."""
    first = node._saved_self if 1 in enters else None
    second = node._saved_mat2 if 0 in enters else None

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        return _of_products(gradient * factors, first, second)

    return answers


def _baddbmm(node: Node, enters: tuple[int, ...]) -> OfGradient:
    """Of bias + a batch of matrix products."""
    first = node._saved_batch1 if 2 in enters else None
    second = node._saved_batch2 if 1 in enters else None

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        scaled = gradient * factors
        return scaled if 0 in enters else None, *_of_products(scaled, first, second)

    return answers


def _of_products(gradient: Tensor, first: Tensor | None, second: Tensor | None) -> Answers:
    """The gradients of both sides of first @ second, each where the other one is given."""
    return None if second is None else gradient.bmm(second.mT), None if first is None else first.mT.bmm(gradient)


def _broadcast(node: Node, number: int) -> OfGradient:
    """Of x + bias and x·weight, where input `number` is one for many of the numbers: those are added up first.

    So nothing as large as x is multiplied by the factors, which are the same for all pixels of a sample.
    """
    below, output = node.next_functions[number]
    kind = below.variable if hasattr(below, "variable") else below._input_metadata[output]
    other = None
    if node.name() == "MulBackward0":
        other = node._saved_self if number == 1 else node._saved_other
    wanted = tuple(kind.shape)

    def answers(gradient: Tensor, factors: Tensor) -> Answers:
        shape = (1,) * (gradient.ndim - len(wanted)) + wanted
        each = (1,) * (gradient.ndim - factors.ndim) + tuple(factors.shape)
        many = [dim for dim in range(gradient.ndim) if shape[dim] == 1 and each[dim] == 1 and gradient.shape[dim] > 1]
        part = gradient if other is None else gradient * other
        part = part.sum(many, keepdim=True) if many else part
        return (*[None] * number, part * factors, *[None] * (1 - number))

    return answers
