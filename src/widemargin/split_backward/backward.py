"""The gradients of a margin loss at the cost of cross-entropy's.

A step of cross-entropy costs a forward pass, the gradients of the activations, and those of the weights: 3. A margin
loss takes the gradient of d_k = f_y − f_i at its places before its own value is known, and plain autograd then goes
back through the network once more: 4. Where samples do not mix and only the strongest class counts, both backward
passes go the same way. The loss depends on the scores through d_k alone, its denominators being constants, so

    ∂loss/∂h = Σ_k c_k·∂d_k/∂h        c_k = ∂ mean loss/∂d_k

at every activation h, and the first pass has computed ∂d_k/∂h already. It is kept wherever a parameter enters. Once
the slopes and with them c_k are known, it is multiplied by c_k, and the gradients of the weights are computed from it.
c_k is the derivative of the loss as a function of d alone, by autograd, which covers every form of the loss, including
the scale-free one with its scale over the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.checks import check_count, deferred_checks
from widemargin.layers.registry import WeightGradient, WeightGradients
from widemargin.margins.distance import Linearization, slope_at
from widemargin.margins.output import differences
from widemargin.modules import ModelInputs, mixing_modules, unwrap
from widemargin.places import At
from widemargin.split_backward.graph import ForwardGraph, ParameterGradients, ParameterUse, graph_of
from widemargin.split_backward.protocol import SplitLoss
from widemargin.split_backward.sample_layouts import Layouts, SampleLayout, layouts_of
from widemargin.types import Labels, PerClass, PerExample, is_binary

Kept: TypeAlias = list[list[Tensor | None]]
"""What is kept at every use, for each of its outputs."""

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Backward:
    """The loss of every sample after a backward pass, the method that was taken, and the reason, as a one-line repr."""

    values: PerExample
    method: Literal["split", "two"]
    reason: str

    def __repr__(self) -> str:
        return f"{'split backward' if self.method == 'split' else 'two backwards'}: {self.reason}"


def split_backward(
    model: nn.Module,
    loss: SplitLoss,
    x: ModelInputs,
    y: Labels,
    scale: float | Tensor,
    memory: int | None,
    replayed: bool,
) -> Backward:
    """Add to `.grad` what `(scale * loss(model, x, y).mean()).backward()` adds, see `MarginLoss.backward`."""
    if memory is not None:
        check_count("memory", memory, least=0)
    scores, at, directions = loss.forward(model, x)
    with deferred_checks(scores, y) as checks:
        plan = _plan(model, loss, x, checks.labels, scores, at, memory, replayed)
        if isinstance(plan, str):
            values = loss.of(scores, checks.labels, at=at, directions=directions)
            checks.wait()
            with torch.autocast(x.device.type, enabled=False):
                (scale * values.mean()).backward()
            return Backward(values=values.detach(), method="two", reason=plan)
        graph, layouts = plan
        reason = f"{len(graph.uses)} layers, {graph.kept_bytes() / 1e6:.3g} MB of gradients kept"
        functions = [use.weight_gradient() for use in graph.uses]
        retain = any(function is None and use.needs_node for function, use in zip(functions, graph.uses))
        with torch.autocast(x.device.type, enabled=False):
            d = differences(scores, checks.labels, classes=loss.classes, read_as=loss.read_as)
            if loss.probes is not None:
                d = d.gather(1, loss.chosen(d, at, directions)[loss.at[0]])
        values, weights, kept = _first_pass(loss, d, at, graph, scale, retain)
        add_to_grad = _second_pass(graph, layouts, kept, weights, functions)
        checks.wait()
        add_to_grad()
    return Backward(values=values, method="split", reason=reason)


def _plan(
    model: nn.Module,
    loss: SplitLoss,
    x: ModelInputs,
    y: Labels,
    scores: Tensor,
    at: At,
    memory: int | None,
    replayed: bool,
) -> tuple[ForwardGraph, Layouts] | str:
    """The graph of the forward pass and the layouts of its gradients, or the reason why there is no split."""
    if not isinstance(x, Tensor):
        return "the inputs are passed by name"
    if (reason := _reason_before_graph(model, loss, scores, memory)) is not None:
        return reason
    form = x.shape, x.dtype, loss.at, torch.is_autocast_enabled(x.device.type)
    small = _too_small.setdefault(unwrap(model), set())
    if form in small and not replayed:
        return TOO_SMALL
    graph = graph_of(scores, list(at.values()))
    if (reason := _reason_of_graph(model, graph, memory)) is not None:
        return reason
    least_work, least_bytes = (limits.get(x.device.type, 0) * len(graph.uses) for limits in (LEAST_WORK, LEAST_BYTES))
    if not replayed and (graph.work() < least_work or graph.kept_bytes() < least_bytes):
        small.add(form)
        return TOO_SMALL
    layouts = layouts_of(model, loss, x, y, graph)
    return layouts if isinstance(layouts, str) else (graph, layouts)


def _first_pass(
    loss: SplitLoss, d: PerClass, at: At, graph: ForwardGraph, scale: float | Tensor, retain: bool
) -> tuple[PerExample, PerExample, Kept]:
    """The values of the loss, c_k, and what is kept at every use of `graph` of the gradients of d_k."""
    zeros = [at[name] for name in at]
    edges = [edge for use in graph.uses if not use.is_hooked for edge in use.edges]
    inputs: Sequence[Any] = [*zeros, *edges]
    with ExitStack() as stack, torch.autocast(d.device.type, enabled=False):
        hooked = [stack.enter_context(use.hook()) if use.is_hooked else None for use in graph.uses]
        ones = d.new_ones(()).expand_as(d)
        gradients = iter(torch.autograd.grad(d, inputs, ones, retain_graph=retain, allow_unused=True))
    q, slopes = norms.dual(loss.p), {}
    for name, zero in zip(at, zeros):
        gradient = next(gradients)
        gradient = torch.zeros_like(zero) if gradient is None else gradient
        slopes[name] = slope_at(name, gradient, q=q, samples=len(d))[:, None]
    kept: Kept = [
        [next(gradients) for _ in use.outputs] if own is None else [*own] for use, own in zip(graph.uses, hooked)
    ]
    d = d.detach().requires_grad_()
    values = loss.penalize(Linearization(difference=d, slopes=slopes))
    each = scale / len(values)
    each = each.to(values).expand_as(values) if isinstance(each, Tensor) else torch.full_like(values, each)
    (weights,) = torch.autograd.grad(values, d, each)
    return values.detach(), weights[:, 0], kept


@torch.no_grad()
def _second_pass(
    graph: ForwardGraph, layouts: Layouts, kept: Kept, weights: PerExample, functions: list[WeightGradient | None]
) -> Callable[[], None]:
    """The gradients of the parameters, from what was kept times c_k; a function that adds them to `.grad`."""
    sums: dict[int, tuple[Tensor, Tensor]] = {}

    def add(gradients: ParameterGradients) -> None:
        for leaf, gradient in gradients:
            before = sums.get(id(leaf))
            sums[id(leaf)] = (leaf, gradient if before is None else before[1] + gradient)

    @functools.cache  # shared by layers with gradients of one form
    def factors(layout: SampleLayout, ndim: int, dtype: torch.dtype) -> Tensor:
        return layout.factors(weights, ndim, dtype)

    group_norms: dict[tuple[SampleLayout, torch.dtype], list[tuple[ParameterUse, Tensor]]] = {}
    kept.reverse()
    functions.reverse()
    with torch.autocast(weights.device.type, enabled=False):
        for use, own in zip(graph.uses, layouts, strict=True):  # kept tensors are freed use by use
            gradients, function = kept.pop(), functions.pop()
            if not use.keeps_sums:
                scales = [None if g is None else factors(layout, g.ndim, g.dtype) for g, layout in zip(gradients, own)]
                add(use.parameter_gradients(gradients, scales, function))
            elif gradients:
                assert gradients[0] is not None
                group_norms.setdefault((own[0], gradients[0].dtype), []).append((use, gradients[0]))
        for (layout, _), group in group_norms.items():
            answers = _group_norms([sums for _, sums in group], layout.spread(weights))
            for (use, _), answer in zip(group, answers):
                add(use.to_parameters(answer))
    leaves = [leaf for leaf, _ in sums.values()]
    totals = [total for _, total in sums.values()]

    def add_to_grad() -> None:
        with torch.enable_grad():
            _WithGradients.apply(totals, *leaves).backward()

    return add_to_grad


def _group_norms(sums: list[Tensor], weights: Tensor) -> list[WeightGradients]:
    """The gradients of (input, γ, β) of group norms, without the first, from their sums on one batch.

    All layers in one operation: each by itself would take a GPU longer to launch than to compute.
    """
    each = weights.to(sums[0].dtype).view(1, -1, 1)
    both = (torch.cat(sums, dim=2) * each).sum(1)  # no matrix product: those may run as TF32
    return [(None, *part.unbind()) for part in both.split([one.shape[2] for one in sums], dim=1)]


class _WithGradients(torch.autograd.Function):
    """A zero whose gradients at the leaves are `totals`.

    They reach `.grad` through autograd's own accumulation, so that hooks of DDP and of the user are called as by any
    backward pass. Since nothing else holds them by then, they are not copied.
    """

    @staticmethod
    def forward(ctx: Any, totals: list[Tensor], *leaves: Tensor) -> Tensor:
        ctx.totals = totals
        return leaves[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        totals = tuple(ctx.totals)
        ctx.totals.clear()
        return None, *totals


def _reason_before_graph(model: nn.Module, loss: SplitLoss, scores: Tensor, memory: int | None) -> str | None:
    """Why the settings of the loss, the modules of the network or its scores rule the split out; or None."""
    if loss.cross_entropy:
        return "the loss has a cross-entropy term, a second direction at the scores"
    if loss.second_order:
        return f"the loss has second_order={loss.second_order!r}, its denominators depend on the weights"
    if loss.probes is not None and (loss.aggregate == "sum" or len(loss.at) > 1):
        return "the loss takes several classes, estimated by random directions"
    if memory == 0:
        return "memory=0"
    if loss.read_as == "probabilities":
        return "the network returns probabilities, which are read as scores"
    network = unwrap(model)
    if mixing := mixing_modules(network):
        return f"{mixing[0]!r} ({type(network.get_submodule(mixing[0])).__name__}) mixes the samples of a batch"
    for name, module in network.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            return f"{name!r} has a backward hook, which must see the gradients of the loss"
    if not len(scores):
        return "the batch is empty"
    others = 1 if is_binary(scores) or loss.probes is not None else scores.shape[1] - 1
    if (count := others if loss.classes == "all" else min(loss.classes, others)) > 1:
        return f"the loss takes {count} classes, each a direction at the scores"
    if scores.grad_fn is None:
        return "the scores have no gradient"
    return None


def _reason_of_graph(model: nn.Module, graph: ForwardGraph, memory: int | None) -> str | None:
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


def _name(model: nn.Module, leaf: Tensor) -> str:
    names = (name for name, parameter in unwrap(model).named_parameters() if parameter is leaf)
    return repr(next(names, "a tensor of the network"))
