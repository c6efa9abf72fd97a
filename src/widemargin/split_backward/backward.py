"""The gradients of a margin loss at the price of cross-entropy.

A step of cross-entropy costs a forward pass, the gradients of the activations, and those of the weights: 3. A margin
loss takes the gradient of d_k = f_y − f_i at its places before it knows its own value, and by plain autograd goes back
through the network once more: 4. But where samples do not mix and only the strongest class counts, the second way back
goes where the first one went. The loss depends on the scores through d_k alone, its denominators being constants, so

    ∂loss/∂h = Σ_k c_k·∂d_k/∂h        c_k = ∂ mean loss/∂d_k

at every activation h, and the first pass has computed ∂d_k/∂h already. It is kept, wherever a parameter enters. Once
the slopes and with them c_k are known, it is multiplied by c_k, and the gradients of the weights are taken from it.
c_k is the derivative of the loss as a function of d alone, by autograd, so that every form of the loss is covered, the
scale-free one with its scale over the batch too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin._cuda.deferred_checks import looked_at
from widemargin.margins.distance import Linearization, slope_at
from widemargin.margins.output import differences
from widemargin.modules import unwrap
from widemargin.places import At
from widemargin.split_backward import reasons
from widemargin.split_backward import weight_gradients as shortcuts
from widemargin.split_backward.graph import Factors, Graph, Layout, Use, graph_of
from widemargin.split_backward.protocol import SplitLoss
from widemargin.split_backward.sample_layouts import Layouts, layouts_of
from widemargin.types import Labels, PerClass, PerExample

LEAST_WORK = {"cuda": 14 * 10**9}
LEAST_BYTES = {"cpu": 100_000}
"""`Graph.work`, or bytes to keep, of a layer, on average, below which two backwards are faster.

The split has more operations to start. On an H200 it took longer with a work of up to 12.4e9 (WRN-28-10 in float32 with
a batch of 32, in bf16 with one of 64; ViT-S in bf16 with one of 64), about as long with 14.4e9 (ViT-S in bf16, 128),
and mostly less long from there on; in a CUDA graph nothing is started. On one core of a CPU it took 0.95 to 1.37
times as long below that many bytes (MLPs, CNNs of 8×8 images) and 0.84 to 1.05 times above
(benchmarks/split_or_two.py).
"""

_little: WeakKeyDictionary[nn.Module, dict[Any, str]] = WeakKeyDictionary()
"""Networks and forms of batches with less: two backwards are always right, and need not look at the graph."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Backward:
    """What a fast backward did: the loss of every sample, the method, and its reason; its repr is one line."""

    values: PerExample
    method: Literal["split", "two"]
    reason: str

    def __repr__(self) -> str:
        return f"{'split backward' if self.method == 'split' else 'two backwards'}: {self.reason}"


def split_backward(
    model: nn.Module,
    loss: SplitLoss,
    x: Tensor,
    y: Labels,
    *,
    scale: float | Tensor = 1.0,
    memory: int | None = None,
    is_replayed: bool = False,
) -> Backward:
    """Add to `.grad` what `(scale * loss(model, x, y).mean()).backward()` adds, see `losses.margin_backward`."""
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory is {memory!r}, expected None or a number of bytes >= 0")
    why_not = _never(unwrap(model), loss, memory)
    scores, at, directions = loss.forward(model, x)
    with looked_at(scores, y) as look:
        found = _split(model, loss, x, look.labels, scores, at, memory, is_replayed) if why_not is None else why_not
        if isinstance(found, str):
            values = loss.of(scores, look.labels, at=at, directions=directions)
            look.answer()
            with torch.autocast(x.device.type, enabled=False):
                (scale * values.mean()).backward()
            return Backward(values=values.detach(), method="two", reason=found)
        graph, layouts = found
        reason = f"{len(graph.uses)} layers, {graph.bytes() / 1e6:.3g} MB of gradients kept"
        held = [None if use.is_summed else use.hold() for use in graph.uses]
        retain = any(one is None and use.needs_node for one, use in zip(held, graph.uses))
        with torch.autocast(x.device.type, enabled=False):
            d = differences(scores, look.labels, classes=loss.classes, read_as=loss.read_as)
            if loss.probes is not None:
                d = d.gather(1, loss.chosen(d, at, directions)[loss.at[0]])
        values, weights, kept = _first_pass(loss, d, at, graph, scale, retain)
        give = _second_pass(graph, layouts, kept, weights, held)
        look.answer()
        give()
    return Backward(values=values, method="split", reason=reason)


def _never(model: nn.Module, loss: SplitLoss, memory: int | None) -> str | None:
    """Why the loss or the network, as they are, rule the split out; or None."""
    if (reason := reasons.of_loss(loss)) is not None:
        return reason
    if loss.probes is not None and (loss.aggregate == "sum" or len(loss.at) > 1):
        return "the loss takes several classes, estimated by random directions"
    if memory == 0:
        return "memory=0"
    if (reason := reasons.of_network(model)) is not None:
        return reason
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            return f"{name!r} has a backward hook, which must see the gradients of the loss"
    return None


def _split(
    model: nn.Module,
    loss: SplitLoss,
    x: Tensor,
    y: Labels,
    scores: Tensor,
    at: At,
    memory: int | None,
    is_replayed: bool,
) -> tuple[Graph, list[list[Layout]]] | str:
    """The graph of this pass and the layouts of its gradients, or why there is no split of it."""
    if not len(x):
        return "the batch is empty"
    if (reason := reasons.of_classes(loss, scores)) is not None:
        return reason
    if scores.grad_fn is None:
        return "the scores have no gradient"
    little = _little.setdefault(unwrap(model), {})
    form = x.shape, x.dtype, loss.at, torch.is_autocast_enabled(x.device.type)
    if form in little and not is_replayed:
        return little[form]
    graph = graph_of(scores, list(at.values()))
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
    if count > 2:  # each of its uses would be gone through twice
        return f"{_name(model, leaf)} is used {count} times"
    if memory is not None and graph.bytes() > memory:
        return f"{graph.bytes() / 1e6:.3g} MB of gradients to keep, more than memory={memory}"
    if not is_replayed and _is_little(graph, x.device.type):
        little[form] = "layers so small that the split would take longer"
        return little[form]
    layouts = layouts_of(model, loss, x, y, graph)
    if not isinstance(layouts, Layouts):
        return layouts
    chosen = layouts.choose(graph, len(x))
    if isinstance(chosen, int):
        shapes = [list(shape) for shape in graph.uses[chosen].shapes()]
        return f"gradients of shape {shapes} ({graph.uses[chosen].node.name()}) are not of {len(x)} samples"
    return graph, chosen


def _is_little(graph: Graph, device: str) -> bool:
    uses = len(graph.uses)
    return graph.work() < LEAST_WORK.get(device, 0) * uses or graph.bytes() < LEAST_BYTES.get(device, 0) * uses


def _name(model: nn.Module, leaf: Tensor) -> str:
    names = (name for name, parameter in unwrap(model).named_parameters() if parameter is leaf)
    return repr(next(names, "a tensor of the network"))


def _first_pass(
    loss: SplitLoss, d: PerClass, at: At, graph: Graph, scale: float | Tensor, retain: bool
) -> tuple[PerExample, PerExample, list[list[Tensor | None]]]:
    """The values of the loss, c_k, and what is kept at every use of `graph` of the gradients of d_k that arrive."""
    zeros = [at[name] for name in at]
    wanted: list[Any] = [*zeros, *(edge for use in graph.uses if not use.is_hooked for edge in use.edges)]
    with ExitStack() as stack, torch.autocast(d.device.type, enabled=False):
        hooked = [stack.enter_context(use.keeping()) if use.is_hooked else None for use in graph.uses]
        ones = d.new_ones(()).expand_as(d)
        found = iter(torch.autograd.grad(d, wanted, ones, retain_graph=retain, allow_unused=True))
    q, slopes = norms.dual(loss.p), {}
    for name, zero in zip(at, zeros):
        gradient = next(found)
        gradient = torch.zeros_like(zero) if gradient is None else gradient
        slopes[name] = slope_at(name, gradient, q=q, samples=len(d))[:, None]
    kept: list[list[Tensor | None]] = [
        [next(found) for _ in use.outputs] if own is None else [*own] for use, own in zip(graph.uses, hooked)
    ]
    d = d.detach().requires_grad_()
    values = loss.penalize(Linearization(difference=d, slopes=slopes))
    each = scale / len(values)
    each = each.to(values).expand_as(values) if isinstance(each, Tensor) else torch.full_like(values, each)
    (weights,) = torch.autograd.grad(values, d, each)
    return values.detach(), weights[:, 0], kept


@torch.no_grad()
def _second_pass(
    graph: Graph, layouts: list[list[Layout]], kept: list[list[Tensor | None]], weights: PerExample, held: list[Any]
) -> Callable[[], None]:
    """Scale what was kept by c_k; what is returned adds the gradients of the parameters to their `.grad`."""
    sums: dict[int, tuple[Tensor, Tensor]] = {}

    def add(found: Iterable[tuple[Tensor, Tensor]]) -> None:
        for leaf, gradient in found:
            before = sums.get(id(leaf))
            sums[id(leaf)] = (leaf, gradient if before is None else before[1] + gradient)

    together: dict[tuple[Layout, torch.dtype], list[tuple[Use, Tensor]]] = {}
    kept.reverse()
    held.reverse()
    factors = Factors(weights)
    with torch.autocast(weights.device.type, enabled=False):
        for use, ways in zip(graph.uses, layouts, strict=True):  # what was kept and held is let go, use by use
            gradients, way = kept.pop(), held.pop()
            if not use.is_summed:
                add(use.parameter_gradients(gradients, ways, factors, way))
            elif gradients:
                assert gradients[0] is not None
                together.setdefault((ways[0], gradients[0].dtype), []).append((use, gradients[0]))
        for (layout, _), group in together.items():
            answers = shortcuts.group_norms([one for _, one in group], layout.spread(weights))
            for (use, _), answer in zip(group, answers):
                add(use.passed_on(answer))
    leaves = [leaf for leaf, _ in sums.values()]
    totals = [total for _, total in sums.values()]

    def give() -> None:
        with torch.enable_grad():
            _Given.apply(totals, *leaves).backward()

    return give


class _Given(torch.autograd.Function):
    """Something of which the leaves have the gradients that it is given.

    So they reach `.grad` through autograd's own accumulation: hooks of DDP and of the user's are called, as by any
    backward pass. And since nobody else holds them by then, they are not copied on the way.
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
