"""Reasons not to take the split backward, in the order in which they are checked.

The last reason, that samples mix in the network, is found by a trial in `sample_layouts`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from widemargin.margins.distance import Linearization
from widemargin.margins.output import Classes, Reading
from widemargin.modules import mixing_modules, unwrap
from widemargin.places import At, BatchStatistics
from widemargin.split_backward.graph import ForwardGraph
from widemargin.types import is_binary

LEAST_WORK = {"cuda": 14 * 10**9}
LEAST_BYTES = {"cpu": 100_000}
"""`ForwardGraph.work`, or bytes to keep, per layer on average, below which two backward passes are faster.

The split has more operations to launch. On an H200 it took longer with a work of up to 12.4e9 (WRN-28-10 in float32
with a batch of 32, in bf16 with one of 64; ViT-S in bf16 with one of 64), about as long with 14.4e9 (ViT-S in bf16,
128), and mostly less long from there on; in a CUDA graph nothing is launched. On one core of a CPU it took 0.95 to 1.37
times as long below that many bytes (MLPs, CNNs of 8×8 images) and 0.84 to 1.05 times above
(benchmarks/split_or_two.py).
"""

TOO_SMALL = "layers so small that the split would take longer"

_too_small: WeakKeyDictionary[nn.Module, set[Hashable]] = WeakKeyDictionary()
"""Networks and forms of batches below the limits, whose graphs need not be built again."""


@runtime_checkable
class SplitLoss(Protocol):
    """A loss of score differences and of their slopes at some places, with the attributes of `losses.MarginLoss`."""

    @property
    def at(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def p(self) -> float: ...  # noqa: D102
    @property
    def classes(self) -> Classes: ...  # noqa: D102
    @property
    def probes(self) -> int | None: ...  # noqa: D102
    @property
    def aggregate(self) -> Literal["max", "sum"]: ...  # noqa: D102
    @property
    def read_as(self) -> Reading: ...  # noqa: D102
    @property
    def cross_entropy(self) -> float: ...  # noqa: D102
    @property
    def second_order(self) -> bool: ...  # noqa: D102
    @property
    def statistics(self) -> BatchStatistics: ...  # noqa: D102

    def forward(self, model: nn.Module, x: Tensor) -> tuple[Tensor, At, Mapping[str, Tensor] | None]:
        """The scores, the watched places, and the directions of `probes`."""
        ...

    def of(self, scores: Tensor, y: Tensor, *, at: At, directions: Mapping[str, Tensor] | None) -> Tensor:
        """The loss of every sample."""
        ...

    def penalize(self, lines: Linearization) -> Tensor:
        """The loss of every sample, given score differences and slopes."""
        ...

    def chosen(self, difference: Tensor, at: At, directions: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """At every place the column of `difference` that `probes` choose."""
        ...


def before_forward(model: nn.Module, loss: SplitLoss, memory: int | None) -> str | None:
    """Why the settings of the loss or the modules of the network rule the split out; or None."""
    if loss.cross_entropy:
        return "the loss has a cross-entropy term, a second direction at the scores"
    if loss.second_order:
        return "the loss has second_order=True, its denominators depend on the weights"
    if loss.probes is not None and (loss.aggregate == "sum" or len(loss.at) > 1):
        return "the loss takes several classes, estimated by random directions"
    if memory == 0:
        return "memory=0"
    network = unwrap(model)
    if mixing := mixing_modules(network):
        return f"{mixing[0]!r} ({type(network.get_submodule(mixing[0])).__name__}) mixes the samples of a batch"
    for name, module in network.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            return f"{name!r} has a backward hook, which must see the gradients of the loss"
    return None


def of_scores(loss: SplitLoss, scores: Tensor) -> str | None:
    """Why these scores rule the split out; or None."""
    if not len(scores):
        return "the batch is empty"
    others = 1 if is_binary(scores) or loss.probes is not None else scores.shape[1] - 1
    if (count := others if loss.classes == "all" else min(loss.classes, others)) > 1:
        return f"the loss takes {count} classes, each a direction at the scores"
    if scores.grad_fn is None:
        return "the scores have no gradient"
    return None


def of_graph(model: nn.Module, graph: ForwardGraph, memory: int | None) -> str | None:
    """Why the graph of the forward pass rules the split out; or None."""
    if not graph.uses:
        return "no parameter has a gradient"
    if any(name.startswith("CompiledFunction") for name in graph.names):
        return "the network is compiled, and its graph hides the layers"
    for leaf in (leaf for use in graph.uses for leaf in use.leaves):
        if leaf._backward_hooks:
            return f"{_name(model, leaf)} has a hook, which must see its gradient once"
        if type(leaf) not in (Tensor, nn.Parameter):
            return f"{_name(model, leaf)} is a {type(leaf).__name__}"
    leaf, count = graph.most_used()
    if count > 2:  # autograd would go through each of its uses twice
        return f"{_name(model, leaf)} is used {count} times"
    if memory is not None and graph.kept_bytes() > memory:
        return f"{graph.kept_bytes() / 1e6:.3g} MB of gradients to keep, more than memory={memory}"
    return None


def is_known_small(model: nn.Module, loss: SplitLoss, x: Tensor) -> bool:
    """Whether `note_small` found such a batch to be below the limits: autograd is right without another graph."""
    return _form(loss, x) in _too_small.get(unwrap(model), ())


def note_small(model: nn.Module, loss: SplitLoss, x: Tensor, graph: ForwardGraph) -> bool:
    """Whether the layers are below the limits, which is remembered for batches of this form."""
    device, uses = x.device.type, len(graph.uses)
    if graph.work() < LEAST_WORK.get(device, 0) * uses or graph.kept_bytes() < LEAST_BYTES.get(device, 0) * uses:
        _too_small.setdefault(unwrap(model), set()).add(_form(loss, x))
        return True
    return False


def _form(loss: SplitLoss, x: Tensor) -> Hashable:
    return x.shape, x.dtype, loss.at, torch.is_autocast_enabled(x.device.type)


def _name(model: nn.Module, leaf: Tensor) -> str:
    names = (name for name, parameter in unwrap(model).named_parameters() if parameter is leaf)
    return repr(next(names, "a tensor of the network"))
