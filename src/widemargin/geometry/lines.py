"""The regions that a line segment visits, the average Jacobian along it, and the norm chain of sokolic, Theorem 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from widemargin.checks import check_batch, check_one
from widemargin.geometry.network import jacobians, read
from widemargin.geometry.polygons import Polygons
from widemargin.layers.forms import Affine, Form, Kink, MaxPool, Slopes, Sum
from widemargin.layers.network import Network
from widemargin.layers.trace import INPUT

_DENSE = 1024  # operators with a side of at most this many entries are decomposed as dense matrices
_MERGED = 1e-13  # breakpoints closer than this are merged: the piece between them has no weight in (10)
_NUMBERS = 2**22  # largest number of entries of a stack of pieces


@dataclass(frozen=True, kw_only=True)
class Line:
    """The segment x(t) = x + t(x2 − x), t ∈ [0, 1] (sokolic (8)), cut where the network changes its affine map.

    `breakpoints` are the t of the cuts, ascending; `widths` the |T_k| of the K visited regions, which sum to 1;
    `points` one point `[K, *input]` inside each of them.
    """

    breakpoints: Float[Tensor, " cuts"]
    widths: Float[Tensor, " regions"]
    points: Float[Tensor, "regions ..."]

    def __len__(self) -> int:
        return len(self.widths)


def line(model: nn.Module, x: Float[Tensor, "*shape"], x2: Float[Tensor, "*shape"]) -> Line:
    """All breakpoints of the network between the samples `x` and `x2` (one sample each, without batch).

    Exact up to rounding: layer by layer, every piece of the segment is cut at the zeros of the affine functions that
    the units are on it. Breakpoints within 1e-13 of each other, in t, are one.
    """
    check_one(x, "x")
    check_one(x2, "x2")
    network, start, end = read_pair(model, x[None], x2[None])
    _, low, high = walk(network, start, end)
    middle = ((low + high) / 2).reshape(-1, *(1,) * x.ndim)
    return Line(breakpoints=high[:-1], widths=high - low, points=start + middle * (end - start))


def average_jacobian(
    model: nn.Module, x: Float[Tensor, "batch ..."], x2: Float[Tensor, "batch ..."]
) -> Float[Tensor, "batch outputs ..."]:
    """J̄ = Σ_k |T_k|·J(T_k), with f(x2) − f(x) = J̄·(x2 − x) (sokolic (9), (10) and Theorem 2), pair by pair.

    f is the whole `model`, in float64 and evaluation mode.
    """
    network, start, end = read_pair(model, x, x2)
    return averages(network, start, end)


def averages(network: Network, start: Tensor, end: Tensor) -> Tensor:
    """J̄ of pairs `[batch, *input]` in float64, as `[batch, outputs, *input]`."""
    owner, low, high = walk(network, start, end)
    total = start.new_zeros(len(start), network.output.numel(), *start.shape[1:])
    rows = max(1, _NUMBERS // start[0].numel())
    for part in torch.arange(len(owner), device=owner.device).split(rows):
        mine, middle = owner[part], ((low + high) / 2)[part].reshape(-1, *(1,) * (start.ndim - 1))
        J = jacobians(network, start[mine] + middle * (end - start)[mine])
        total.index_add_(0, mine, J * (high - low)[part].reshape(-1, *(1,) * (J.ndim - 1)))
    return total


@torch.no_grad()
def walk(
    network: Network, start: Tensor, end: Tensor
) -> tuple[Int[Tensor, " k"], Float[Tensor, " k"], Float[Tensor, " k"]]:
    """The pieces of every segment: the index of its pair, and the t where it begins and ends, in order."""
    every = torch.arange(len(start), dtype=torch.float64, device=start.device)
    pieces = torch.stack((every, torch.zeros_like(every), torch.ones_like(every)), dim=1)
    stack = torch.stack((end - start, start), dim=1)
    pieces = torch.cat([part for part, _ in cut_layers(network, pieces, stack, _cut, _NUMBERS)])
    for column in (1, 0):  # by the beginning, and then by the pair
        pieces = pieces[torch.argsort(pieces[:, column], stable=True)]
    owner, low, high = pieces.T.contiguous()
    return owner.long(), low, high


_Pieces = TypeVar("_Pieces", Tensor, Polygons)


def cut_layers(
    network: Network,
    pieces: _Pieces,
    stack: Tensor,
    cut: Callable[[Kink, _Pieces, Tensor], tuple[_Pieces, Tensor, Tensor]],
    most: int,
) -> Iterator[tuple[_Pieces, Tensor]]:
    """The parts of `pieces` on which the network is affine, and its outputs on each as a stack `[parts, k, outputs]`.

    Depth first, in chunks of at most `most` entries of a stack: memory does not grow with the number of parts.
    `stack[piece]` is the network's input on a piece. `cut(kink, pieces, stack)` returns children on which no unit
    of the kink changes, the index of their parents, and the winner of each unit.
    """
    last = {source: number for number, sources in enumerate(network.inputs) for source in sources}
    waiting = [(0, pieces, {INPUT: stack})]  # the next step, and the outputs of earlier ones that are still needed
    while waiting:
        index, pieces, stacks = waiting.pop()
        while index < len(network.steps) and not isinstance(step := network.steps[index], (Slopes, MaxPool)):
            assert isinstance(step, (Affine, Sum))
            sources = network.inputs[index]
            stacks[index] = step.stacked(*(stacks[source] for source in sources))
            stacks = {number: kept for number, kept in stacks.items() if last.get(number, index) >= index}
            index += 1
        if index == len(network.steps):
            yield pieces, stacks[index - 1].flatten(2)
            continue
        kink, stack = network.steps[index], stacks[network.inputs[index][0]]
        assert isinstance(kink, (Slopes, MaxPool))
        rows = max(1, most // max(kink.rivals(stack[:1]).numel(), 1))
        if len(stack) > rows:
            parts = torch.arange(len(stack), device=stack.device).split(rows)
            waiting += [(index, pieces[part], {n: kept[part] for n, kept in stacks.items()}) for part in parts]
            continue
        pieces, parent, winners = cut(kink, pieces, stack)
        after = {number: kept[parent] for number, kept in stacks.items() if last[number] > index}
        waiting.append((index + 1, pieces, {**after, index: kink.stacked(stack[parent], winners)}))


def _cut(kink: Kink, pieces: Tensor, stack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rivals = kink.rivals(stack)  # [pieces, 2, units, rivals], affine in t
    owner, low, high = pieces.unbind(dim=1)
    cells, at = _crossings(rivals, low, high)
    parent, begin = torch.cat((torch.arange(len(low), device=low.device), cells)), torch.cat((low, at))
    order = torch.argsort(begin, stable=True)
    order = order[torch.argsort(parent[order], stable=True)]
    parent, begin = parent[order], begin[order]
    first = torch.ones_like(parent, dtype=torch.bool)
    first[1:] = parent[1:] != parent[:-1]
    # Cuts that are too close to the one before are dropped.
    fresh = first.clone()
    fresh[1:] |= begin[1:] - begin[:-1] > _MERGED
    parent, begin, first = parent[fresh], begin[fresh], first[fresh]
    finish = high[parent]
    finish[:-1] = torch.where(first[1:], finish[:-1], begin[1:])
    middle = (begin + finish) / 2
    values = rivals[parent, 0] * middle[:, None, None] + rivals[parent, 1]
    winners = (values[..., 0] <= 0).long() if isinstance(kink, Slopes) else values.argmax(dim=2)
    return torch.stack((owner[parent], begin, finish), dim=1), parent, winners


def _crossings(rivals: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(piece, t) wherever two rivals of a unit tie above all others, strictly inside the piece."""
    pieces, times = [], []
    count = rivals.shape[3]
    for i in range(count):
        for j in range(i + 1, count):
            slope = rivals[:, 0, :, i] - rivals[:, 0, :, j]
            t = (rivals[:, 1, :, j] - rivals[:, 1, :, i]) / slope  # ±inf or NaN where they never tie
            inside = (t > low[:, None] + _MERGED) & (t < high[:, None] - _MERGED)
            piece, unit = inside.nonzero(as_tuple=True)
            t = t[piece, unit]
            if count > 2:
                values = rivals[piece, 0, unit] * t[:, None] + rivals[piece, 1, unit]
                size = values[values.isfinite()].abs().max() if len(values) else 0.0
                top = values[:, i] >= values.amax(dim=1) - 1e-12 * size
                piece, t = piece[top], t[top]
            pieces.append(piece)
            times.append(t)
    return torch.cat(pieces), torch.cat(times)


def read_pair(model: nn.Module, x: Tensor, x2: Tensor) -> tuple[Network, Tensor, Tensor]:
    """The network, and both batches in float64 after a check of their shapes."""
    check_batch(x, "x")
    check_batch(x2, "x2")
    if x.shape != x2.shape:
        raise ValueError(f"x has shape {list(x.shape)}, but x2 has {list(x2.shape)}")
    network = read(model, x)
    return network, network.double(x), network.double(x2)


@dataclass(frozen=True, kw_only=True)
class NormChain:
    """moved = averaged ≤ jacobian ≤ spectral ≤ frobenius, `[batch]` each (sokolic (12))."""

    moved: Tensor  # ‖f(x2) − f(x)‖
    averaged: Tensor  # ‖J̄·(x2 − x)‖
    jacobian: Tensor  # ‖J̄‖_2·‖x2 − x‖
    spectral: Tensor  # Π‖W_i‖_2·‖x2 − x‖
    frobenius: Tensor  # Π‖W_i‖_F·‖x2 − x‖


def norm_chain(model: nn.Module, x: Float[Tensor, "batch ..."], x2: Float[Tensor, "batch ..."]) -> NormChain:
    """‖f(x2) − f(x)‖ = ‖J̄(x2 − x)‖ ≤ Π‖W_i‖_2·‖x2 − x‖ ≤ Π‖W_i‖_F·‖x2 − x‖ (sokolic (12)), with ‖J̄‖_2·‖x2 − x‖ between.

    A convolution counts as a linear operator. Both products contain the Lipschitz constants of steps that are not in
    the paper: the larger slope of activations, the spectral norms of BatchNorm and average pools, and for overlapping
    max-pools the root of the number of windows that share an entry.
    """
    network, start, end = read_pair(model, x, x2)
    J = averages(network, start, end).flatten(2)
    distance = torch.linalg.vector_norm((end - start).flatten(1), dim=1)
    with torch.no_grad():
        moved = torch.linalg.vector_norm(network.forward(end) - network.forward(start), dim=1)
    averaged = torch.linalg.vector_norm(torch.einsum("bon,bn->bo", J, (end - start).flatten(1)), dim=1)
    products = factors(network)
    return NormChain(
        moved=moved,
        averaged=averaged,
        jacobian=torch.linalg.matrix_norm(J, ord=2) * distance,
        spectral=math.prod(spectral for spectral, _ in products) * distance,
        frobenius=math.prod(frobenius for _, frobenius in products) * distance,
    )


@torch.no_grad()
def factors(network: Network) -> list[tuple[float, float]]:
    """(‖·‖_2, ‖·‖_F) of each step; a step without weights has its Lipschitz constant twice."""
    return [_factor(step) for step in network.pieces]


def _factor(step: Form) -> tuple[float, float]:
    if not isinstance(step, Affine) or step.moves:
        return step.lipschitz, step.lipschitz
    size, outputs = step.zeros.numel(), step.linear(step.zeros).numel()
    dense = min(size, outputs) <= _DENSE and size * outputs <= 2**24
    square, rows = 0.0, []
    for part in torch.arange(size, device=step.zeros.device).split(256):
        basis = step.zeros.new_zeros(len(part), size).scatter(1, part[:, None], 1.0)
        image = step.linear(basis.view(-1, *step.zeros.shape[1:])).flatten(1)
        square += float(image.square().sum())
        rows += [image] if dense else []
    spectral = float(torch.linalg.matrix_norm(torch.cat(rows), ord=2)) if dense else step.lipschitz
    return spectral, math.sqrt(square) if step.is_weight else spectral
