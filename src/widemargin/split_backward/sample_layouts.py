"""The positions of samples in the gradients that arrive at the uses of parameters, found by a trial.

The split backward relies on one identity: if d_k, the score difference of sample k, is weighted by c_k, the gradient
that arrives at every use of a parameter is the unweighted one with the part of sample k times c_k. It holds where
samples do not mix. Instead of a list of layers that keep it, the identity itself is tested, on a few samples, with
weights that are powers of two of both signs. These commute with every rounding, so that a difference means that it does
not hold, also in bfloat16. Random parameters replace those of the network: a gate that starts at zero hides nothing,
and the result is the same at the start of a training and in the middle of it.

The same trial tells how samples lie in a gradient: along its first dimension, or along another one, each with one row
or several (tokens, heads), samples outside or inside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from widemargin import places
from widemargin._autograd.preserve_rng import preserve_rng
from widemargin.margins.output import differences
from widemargin.modules import scores_of, unwrap
from widemargin.split_backward.graph import ForwardGraph, ParameterUse, graph_of
from widemargin.split_backward.protocol import SplitLoss

WEIGHTS = (1.0, -2.0, 0.5, -1.0, 2.0, -0.5, 4.0, -0.25)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
COARSE_TOLERANCE = 1e-2


@dataclass(frozen=True)
class SampleLayout:
    """Samples lie along `dim`, `each` rows a sample, the rows of a sample adjacent or `each` times in turn."""

    dim: int
    each: int
    is_adjacent: bool

    def factors(self, weights: Tensor, ndim: int, dtype: torch.dtype) -> Tensor:
        """The factors that multiply the part of sample k of a gradient of `ndim` dimensions by `weights[k]`.

        In half precision the weights are rounded, as autograd rounds them between the loss and the scores.
        """
        return self.spread(weights).to(dtype).view(-1, *[1] * (ndim - self.dim - 1))

    def spread(self, weights: Tensor) -> Tensor:
        """The weight of every row along `dim`."""
        if self.each == 1:
            return weights
        return weights.repeat_interleave(self.each) if self.is_adjacent else weights.repeat(self.each)

    def fits(self, shape: Sequence[int], like: Sequence[int], samples: int) -> bool:
        """Whether `shape` is `like`, which has another number of samples, with `samples` of them."""
        expected = list(like)
        expected[self.dim] = samples * self.each
        return list(shape) == expected


Layouts: TypeAlias = list[list[SampleLayout]]
"""The layout of each gradient that arrives at each use."""

Trial: TypeAlias = list[list[tuple[tuple[SampleLayout, ...], tuple[int, ...]]]]
"""For every gradient that arrives at every use: the layouts that agree with the trial, and its shape there."""

_known: WeakKeyDictionary[nn.Module, dict[Hashable, Trial | str]] = WeakKeyDictionary()


def layouts_of(model: nn.Module, loss: SplitLoss, x: Tensor, y: Tensor, graph: ForwardGraph) -> Layouts | str:
    """The layout of every gradient of `graph`, or the reason why there is none.

    A network is tried once for each form of its graph.
    """
    network, few = unwrap(model), min(len(x), len(WEIGHTS))
    form = tuple((use.outputs, len(use.leaves)) for use in graph.uses)
    modes = tuple(module.training for module in network.modules())
    key = graph.names, form, modes, loss.at, loss.read_as, loss.probes is None, few, x.shape[1:]
    known = _known.setdefault(network, {})
    if key not in known:
        known[key] = _try(network, loss, x[:few].detach().requires_grad_(x.requires_grad), y[:few], graph)
    trial = known[key]
    return trial if isinstance(trial, str) else _choose(trial, graph, len(x))


def _choose(trial: Trial, graph: ForwardGraph, samples: int) -> Layouts | str:
    """The first layout that fits each gradient of each use of `graph`; or the reason why there is none."""
    chosen: Layouts = []
    for use, arriving in zip(graph.uses, trial, strict=True):
        layouts = []
        for shape, (agreeing, like) in zip(use.shapes(), arriving, strict=True):
            fitting = [one for one in agreeing if one.fits(shape, like, samples)]
            layout = next((one for one in fitting if one.dim == 0 or not use.keeps_sums), None)
            if layout is None:
                shapes = [list(shape) for shape in use.shapes()]
                return f"gradients of shape {shapes} ({use.node.name()}) are not of {samples} samples"
            layouts.append(layout)
        chosen.append(layouts)
    return chosen


def _try(network: nn.Module, loss: SplitLoss, x: Tensor, y: Tensor, graph: ForwardGraph) -> Trial | str:
    with preserve_rng(x.device):
        tensors = {name: buffer.detach().clone() for name, buffer in network.named_buffers()}
        tensors |= _random_parameters(network, x.device)
        if loss.probes is not None and loss.at == (places.INPUT,):  # it has a forward pass of its own
            scores, at, _ = loss.forward(_Replaced(network, tensors), x)
        else:
            with places.watch(network, loss.at, statistics=loss.statistics) as at:
                scores = scores_of(functional_call(network, tensors, (x,)))
    if scores.grad_fn is None or not bool(torch.isfinite(scores).all()):
        return "the scores of a few samples on trial are not finite"
    trial = graph_of(scores, list(at.values()))
    if trial.names != graph.names or len(trial.uses) != len(graph.uses):
        return f"the graph of {len(x)} samples on trial is another one"
    difference = differences(scores, y, classes=1, read_as=loss.read_as)
    edges = [edge for use in trial.uses for edge in use.edges]
    weights = torch.tensor(WEIGHTS[: len(x)], device=x.device, dtype=difference.dtype)
    with _names_of_runs(network) as ran, torch.autocast(x.device.type, enabled=False):
        plain, weighted = (
            torch.autograd.grad(difference, edges, w[:, None], retain_graph=True, allow_unused=True)
            for w in (torch.ones_like(weights), weights)
        )
    if ran:
        return f"{ran[0]!r} runs again in the backward pass (checkpointing), and would for every layer"
    arrived = zip(plain, weighted, strict=True)
    of_uses: Trial = []
    for use, real in zip(trial.uses, graph.uses, strict=True):
        agreeing = [_agreeing(*next(arrived), weights) for _ in use.outputs]
        if not all(agreeing):
            return f"{_described(network, real)} does not treat samples one by one"
        of_uses.append(list(zip(agreeing, use.shapes(), strict=True)))
    return of_uses


class _Replaced(nn.Module):
    """A network with other parameters and buffers; the network is not registered as a submodule."""

    def __init__(self, network: nn.Module, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self._call = functools.partial(functional_call, network, tensors)

    def forward(self, x: Tensor) -> Tensor:
        return scores_of(self._call((x,)))


@contextmanager
def _names_of_runs(network: nn.Module) -> Iterator[list[str]]:
    """The names of the modules that run inside the `with` block."""
    ran: list[str] = []
    with ExitStack() as stack:
        for name, module in network.named_modules():
            stack.callback(module.register_forward_pre_hook(lambda *_, name=name: ran.append(name)).remove)
        yield ran


def _agreeing(plain: Tensor | None, weighted: Tensor | None, weights: Tensor) -> tuple[SampleLayout, ...]:
    """The layouts by which `weighted` is `plain` with the part of each sample times its weight."""
    if plain is None or weighted is None or not bool(plain.any()):
        return ()
    tolerance = TOLERANCE.get(plain.dtype, COARSE_TOLERANCE) * float(weighted.abs().max())
    return tuple(
        layout
        for layout in _possible(plain.shape, len(weights))
        if float((plain * layout.factors(weights, plain.ndim, plain.dtype) - weighted).abs().max()) <= tolerance
    )


def _possible(shape: Sequence[int], samples: int) -> Iterator[SampleLayout]:
    for dim, size in enumerate(shape):
        if size and size % samples == 0:
            each = size // samples
            yield SampleLayout(dim, each, is_adjacent=True)
            if each > 1 and samples > 1:
                yield SampleLayout(dim, each, is_adjacent=False)


def _random_parameters(network: nn.Module, device: torch.device) -> dict[str, Tensor]:
    """Random parameters, of a size that keeps the scale of activations.

    Those of one dimension, biases and the weights of norms, are about 1/2, so that ReLUs are partly active.
    """
    generator = torch.Generator(device=device).manual_seed(0)
    tensors = {}
    for name, parameter in network.named_parameters():
        value = parameter.detach().clone()
        if value.is_floating_point() and value.ndim > 1:
            value.normal_(std=math.sqrt(2 / max(1, math.prod(value.shape[1:]))), generator=generator)
        elif value.is_floating_point():
            value.normal_(mean=0.5, std=0.1, generator=generator)
        tensors[name] = value.requires_grad_(parameter.requires_grad)
    return tensors


def _described(network: nn.Module, use: ParameterUse) -> str:
    """A use, by the first parameter that enters it."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    entering = [names[id(leaf)] for leaf in use.leaves if id(leaf) in names]
    return f"what {entering[0]!r} enters ({use.node.name()})" if entering else f"a layer ({use.node.name()})"
