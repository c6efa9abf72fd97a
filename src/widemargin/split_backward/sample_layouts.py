"""Do samples stay apart on the way back from the scores, and where does each one lie in the gradients that arrive?

The split backward stands on one identity: if d_k, the score difference of sample k, is weighted by c_k, the gradient
that arrives at every use of a parameter is the unweighted one with the part of sample k times c_k. Which layers keep it
is not looked up in a list of known ones: the identity itself is tried, on a few samples, with weights that are powers
of two and of both signs. Those commute with every rounding, so that a difference means that it does not hold, also in
bfloat16. It is tried with random parameters in the place of the network's own: a gate that starts at zero hides
nothing, and the answer is the same at the start of a training and in the middle of it.

The same trial says how samples lie in a gradient: along its first dimension, or along another one, each taking a row or
several (tokens, heads), samples outside or inside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from widemargin import places
from widemargin._autograd.preserve_rng import preserve_rng
from widemargin.margins.output import differences
from widemargin.modules import scores_of, unwrap
from widemargin.split_backward.graph import Graph, Layout, Spreads, Use, graph_of
from widemargin.split_backward.protocol import SplitLoss

WEIGHTS = (1.0, -2.0, 0.5, -1.0, 2.0, -0.5, 4.0, -0.25)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
COARSE = 1e-2

AnyLayout = TypeVar("AnyLayout", bound=Spreads)

_seen: WeakKeyDictionary[nn.Module, dict[Any, Layouts | str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Layouts:
    """Of every use, of every gradient that arrives there: the layouts that are right, and the shape on trial."""

    of_uses: tuple[tuple[tuple[tuple[Layout, ...], tuple[int, ...]], ...], ...]

    def choose(self, graph: Graph, samples: int) -> list[list[Layout]] | int:
        """The first layout that fits, of every gradient of every use of `graph`; or the use where none does."""
        chosen = []
        for number, (use, found) in enumerate(zip(graph.uses, self.of_uses, strict=True)):
            fitting = [
                next((way for way in right if way.fits(shape, like, samples) and not (use.is_summed and way.dim)), None)
                for shape, (right, like) in zip(use.shapes(), found, strict=True)
            ]
            if None in fitting:
                return number
            chosen.append([layout for layout in fitting if layout is not None])
        return chosen


def layouts_of(model: nn.Module, loss: SplitLoss, x: Tensor, y: Tensor, graph: Graph) -> Layouts | str:
    """The layouts of `graph`, or in words why there are none; a network is tried once for each form of its graph."""
    network, few = unwrap(model), min(len(x), len(WEIGHTS))
    form = tuple((use.outputs, len(use.leaves)) for use in graph.uses)
    modes = tuple(module.training for module in network.modules())
    key = graph.names, form, modes, loss.at, loss.read_as, loss.probes is None, few, x.shape[1:]
    known = _seen.setdefault(network, {})
    if key not in known:
        known[key] = _try(network, loss, x[:few].detach().requires_grad_(x.requires_grad), y[:few], graph)
    return known[key]


def _try(network: nn.Module, loss: SplitLoss, x: Tensor, y: Tensor, graph: Graph) -> Layouts | str:
    with preserve_rng(x.device):
        tensors = {name: buffer.detach().clone() for name, buffer in network.named_buffers()}
        tensors |= drawn(dict(network.named_parameters()), x.device)
        if loss.probes is not None and loss.at == (places.INPUT,):  # its forward pass is one of its own
            scores, at, _ = loss.forward(_With(network, tensors), x)
        else:
            with places.watch(network, loss.at, statistics=loss.statistics) as at:
                scores = scores_of(functional_call(network, tensors, (x,)))
    if scores.grad_fn is None or not bool(torch.isfinite(scores).all()):
        return "the scores of a few samples on trial are not finite"
    few = graph_of(scores, list(at.values()))
    if few.names != graph.names or len(few.uses) != len(graph.uses):
        return f"the graph of {len(x)} samples on trial is another one"
    difference = differences(scores, y, classes=1, read_as=loss.read_as)
    edges = [edge for use in few.uses for edge in use.edges]
    weights = torch.tensor(WEIGHTS[: len(x)], device=x.device, dtype=difference.dtype)
    with _runs(network) as ran, torch.autocast(x.device.type, enabled=False):
        plain, weighted = (
            torch.autograd.grad(difference, edges, w[:, None], retain_graph=True, allow_unused=True)
            for w in (torch.ones_like(weights), weights)
        )
    if ran:
        return f"{ran[0]!r} runs again in the backward pass (checkpointing), and would for every layer"
    arrived = zip(plain, weighted, strict=True)
    of_uses = []
    for use, real in zip(few.uses, graph.uses, strict=True):
        found = [agreeing(*next(arrived), weights, _layouts(shape, len(weights))) for shape in use.shapes()]
        if not all(found):
            return f"{named(dict(network.named_parameters()), real)} does not treat samples one by one"
        of_uses.append(tuple(zip(found, use.shapes(), strict=True)))
    return Layouts(tuple(of_uses))


class _With(nn.Module):
    """A network with other parameters and buffers than its own; it is not a part of this one."""

    def __init__(self, network: nn.Module, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self._call = functools.partial(functional_call, network, tensors)

    def forward(self, x: Tensor) -> Tensor:
        return scores_of(self._call((x,)))


@contextmanager
def _runs(network: nn.Module) -> Iterator[list[str]]:
    """The names of the modules that run inside the `with` block."""
    ran: list[str] = []
    with ExitStack() as stack:
        for name, module in network.named_modules():
            stack.callback(module.register_forward_pre_hook(lambda *_, name=name: ran.append(name)).remove)
        yield ran


def agreeing(
    plain: Tensor | None, weighted: Tensor | None, weights: Tensor, layouts: Iterable[AnyLayout]
) -> tuple[AnyLayout, ...]:
    """Those of `layouts` by which `weighted` is `plain` with the part of each sample times its weight."""
    if plain is None or weighted is None or not bool(plain.any()):
        return ()
    slack = TOLERANCE.get(plain.dtype, COARSE) * float(weighted.abs().max())
    return tuple(
        layout for layout in layouts if float((plain * layout.factors(weights, plain) - weighted).abs().max()) <= slack
    )


def _layouts(shape: Sequence[int], samples: int) -> Iterator[Layout]:
    for dim, size in enumerate(shape):
        if size and size % samples == 0:
            each = size // samples
            yield Layout(dim, each, is_adjacent=True)
            if each > 1 and samples > 1:
                yield Layout(dim, each, is_adjacent=False)


def drawn(parameters: Mapping[str, Tensor], device: torch.device, *, stacked: bool = False) -> dict[str, Tensor]:
    """Random tensors in the place of `parameters`, of a size that passes activations on as they are.

    Those of one dimension, biases and the weights of norms, are about 1/2, so that ReLUs let something through.
    `stacked`: they are of several networks, `[networks, ...]`.
    """
    generator = torch.Generator(device=device).manual_seed(0)
    tensors = {}
    for name, parameter in parameters.items():
        value = parameter.detach().clone()
        own = value.shape[1:] if stacked else value.shape
        if value.is_floating_point() and len(own) > 1:
            value.normal_(std=math.sqrt(2 / max(1, math.prod(own[1:]))), generator=generator)
        elif value.is_floating_point():
            value.normal_(mean=0.5, std=0.1, generator=generator)
        tensors[name] = value.requires_grad_(parameter.requires_grad)
    return tensors


def named(parameters: Mapping[str, Tensor], use: Use) -> str:
    """A use, by the first of `parameters` that enters it."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    entering = [names[id(leaf)] for leaf in use.leaves if id(leaf) in names]
    return f"what {entering[0]!r} enters ({use.node.name()})" if entering else f"a layer ({use.node.name()})"
