"""A network as steps in float64, each of which takes outputs of earlier ones: affine maps, kinks, sums, divisions."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from widemargin.checks import check_batch, check_labels, check_module, check_scores_and_labels
from widemargin.layers.forms import Affine, Form, MaxPool, RootMeanSquare, Slopes, Step, Sum, Unread
from widemargin.layers.registry import forms_of, rule
from widemargin.layers.trace import INPUT, Call, UnreadFunction, read_trace
from widemargin.modules import cast_input, evaluating, scores_of, uncompiled, unwrap

PIECEWISE = (Affine, Slopes, MaxPool)
"""Forms of a piecewise affine network without sums."""
_KNOWN = (
    "Linear, Conv, ReLU, LeakyReLU, PReLU of one slope, MaxPool, AvgPool, Flatten, Dropout, BatchNorm, activations "
    "with `slopes`"
)
_ATTENTION = {"softmax", "Softmax", "scaled_dot_product_attention", "MultiheadAttention"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """The forms of a network's layers in the order in which they run, with the names and modules of these layers.

    `inputs[i]` are the numbers of the steps whose outputs enter step i; `INPUT` (−1) is the network's input. `shapes`
    are those that enter the steps, `output` is that of the scores, the output of the last step; without the batch.
    """

    steps: tuple[Step, ...]
    names: tuple[str, ...]
    modules: tuple[nn.Module, ...]
    inputs: tuple[tuple[int, ...], ...]
    shapes: tuple[torch.Size, ...]
    shape: torch.Size
    output: torch.Size
    device: torch.device

    @property
    def widest(self) -> int:
        """The number of entries of the largest layer."""
        return max(shape.numel() for shape in (*self.shapes, self.output))

    @cached_property
    def pieces(self) -> tuple[Form, ...]:
        """The steps of a chain of affine maps and kinks; a TypeError names what is not one."""
        self.require(*PIECEWISE)
        for number, (name, inputs) in enumerate(zip(self.names, self.inputs)):
            if inputs != (number - 1,):
                raise TypeError(f"layer {name!r} takes {len(inputs)} inputs, expected a chain (no residual sums)")
        return tuple(step for step in self.steps if isinstance(step, PIECEWISE))

    def require(self, *kinds: type[Step]) -> None:
        """Raise a TypeError that names the steps of other kinds."""
        found = [number for number, step in enumerate(self.steps) if not isinstance(step, kinds)]
        if not found:
            return
        kind = {number: _kind(self.modules[number]) for number in found}
        also = [name for name in dict.fromkeys(kind.values()) if name != kind[found[0]]]
        more = f"; also not supported: {', '.join(also)}" if also else ""
        attention = " (attention)" if _ATTENTION & {*kind.values()} else ""
        known = _KNOWN + ", sums" * (Sum in kinds) + ", group and layer norm" * (RootMeanSquare in kinds)
        raise TypeError(
            f"layer {self.names[found[0]]!r} is {self.modules[found[0]]!r}, which is not piecewise affine, "
            f"expected {known}{more}{attention}"
        )

    def double(self, x: Tensor) -> Tensor:
        """`x` in float64 on the network's device."""
        return x.detach().to(self.device, torch.float64)

    def towards(self, x: Tensor, labels: Tensor) -> Tensor:
        """`against` of the labels of samples, after a check of them."""
        check_labels(labels, len(x))
        labels, outputs = labels.to(self.device), self.output.numel()
        check_scores_and_labels(torch.zeros(len(x), outputs, device=self.device), labels)
        return against(outputs, labels)

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[batch, outputs]` of samples in float64."""
        last = x
        for value in self.values(x):
            last = value
        return last.reshape(len(x), -1)  # the output of a binary network may be [batch]

    def values(self, x: Tensor) -> Iterator[Tensor]:
        """The outputs of the steps, one after another; each is dropped after its last use."""
        last = {source: number for number, sources in enumerate(self.inputs) for source in sources}
        kept = {INPUT: x}
        for number, (step, sources) in enumerate(zip(self.steps, self.inputs)):
            kept[number] = step.forward(*(kept[source] for source in sources))
            for source in {*sources}:
                if last[source] == number:
                    del kept[source]
            yield kept[number]


@torch.no_grad()
def read(model: nn.Module, x: Tensor) -> Network:
    """The steps that `model` takes on `x`, by running it on the first sample in evaluation mode.

    A layer without a form is an `Unread` step, which `Network.require` names.

    Raises:
        TypeError: the operations of the network can't be followed, see `layers.trace`.
    """
    check_batch(x, "x")
    check_module(model)
    trace = read_trace(model, x, "pieces", "affine", "steps", "lipschitz")
    used = _used(trace.calls, trace.output)
    steps: list[Step] = []
    calls: list[Call] = []
    inputs: list[tuple[int, ...]] = []
    ends = {INPUT: INPUT}  # number of a call → number of its last step
    with evaluating(unwrap(model)):  # a spectral norm in training mode changes whenever its weight is read
        for number in used:
            call = trace.calls[number]
            sources = tuple(ends[source] for source in call.inputs)
            for step in forms_of(call.module, call.x) or (_unread(call),):
                steps.append(step)
                calls.append(call)
                inputs.append(sources)
                sources = (len(steps) - 1,)
            ends[number] = len(steps) - 1
    network = Network(
        steps=tuple(steps),
        names=tuple(call.name for call in calls),
        modules=tuple(call.module for call in calls),
        inputs=tuple(inputs),
        shapes=tuple(call.x.shape[1:] for call in calls),
        shape=x.shape[1:],
        output=trace.scores.shape[1:],
        device=trace.scores.device,
    )
    if all(step.lipschitz is not None for step in steps if isinstance(step, Unread)):
        _verify(network, model, x)
    return network


def against(outputs: int, labels: Tensor) -> Tensor:
    """Rows e_y − e_c `[batch, others, outputs]` of the classes c ≠ y, or (±1) for one output, in float64.

    A sample keeps its label while the products of all its rows with the scores are > 0.
    """
    if outputs == 1:
        return labels.double().reshape(-1, 1, 1)
    identity = torch.eye(outputs, dtype=torch.float64, device=labels.device)
    own, every = labels.long()[:, None], torch.arange(outputs, device=labels.device).expand(len(labels), -1)
    return identity[own] - identity[every[every != own].view(len(labels), outputs - 1)]


def _used(calls: Collection[Call], output: int) -> list[int]:
    """The numbers of the calls on which the scores depend, in their order."""
    calls, found, waiting = list(calls), set[int](), [output]
    while waiting:
        number = waiting.pop()
        if number != INPUT and number not in found:
            found.add(number)
            waiting += calls[number].inputs
    return sorted(found)


def _unread(call: Call) -> Unread:
    constant = None if isinstance(call.module, UnreadFunction) else rule("lipschitz", call.module)
    if constant is None or len(call.inputs) != 1:
        return Unread(lipschitz=None, forward=call.module.forward)
    layer = copy.deepcopy(call.module).double()
    return Unread(lipschitz=constant(call.module, call.x), forward=layer.eval())


def _kind(module: nn.Module) -> str:
    return module.function if isinstance(module, UnreadFunction) else type(module).__name__


def _verify(network: Network, model: nn.Module, x: Tensor) -> None:
    """Raise unless the steps give the scores of the first sample, and of one that was not seen when they were read."""
    bare = unwrap(model)
    first = cast_input(bare, x[:1].detach())
    noise = torch.randn(first.shape, generator=torch.Generator().manual_seed(0)).to(first)
    rows = torch.cat((first + 0.1 * max(float(first.abs().max()), 0.1) * noise, first))
    with evaluating(bare), uncompiled(bare):
        scores = scores_of(bare(rows.clone()))
    expected = network.forward(network.double(rows))
    close = 1e3 * torch.finfo(scores.dtype).eps * max(float(expected.abs().max()), 1.0)
    if float((expected - scores.double().reshape(expected.shape)).abs().max()) > close:
        raise TypeError("model gives other scores than its layers do, expected modules without side effects")
